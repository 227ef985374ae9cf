/** A request of Express or of Node's own servers: the parts that the fence needs. */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly socket?: { readonly destroyed?: boolean } | null | undefined;
}

/** A response of Express or of Node's own servers: the parts that the fence needs. */
export interface NodeResponse {
  statusCode: number;
  readonly writableEnded: boolean;
  readonly destroyed?: boolean;
  readonly closed?: boolean;
  setHeader(name: string, value: string): unknown;
  // `any`, because it has many signatures, and all arguments are passed on.
  end(...args: any[]): unknown;
  once(event: "close", listener: () => void): unknown;
}

/** A Fastify request: the parts that the fence needs. */
export interface FastifyRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly raw?: NodeRequest;
}

/** A Fastify reply: the parts that the fence needs. */
export interface FastifyReply {
  readonly raw: NodeResponse;
  code(status: number): unknown;
  header(name: string, value: string): unknown;
  send(payload: string): unknown;
  hijack(): unknown;
}

/** A Hono context: the parts that the fence needs. */
export interface HonoContext {
  readonly req: { readonly raw: Request };
  /** The answer, once there is one. */
  readonly res?: { readonly status: number };
}

// The arguments that frameworks pass to `resource`, for functions that do not declare a type. They are
// declared here so that no framework must be installed for the types. Parts that depend on the route are
// `any`.

/** An Express request, as `resource` gets it. */
export interface ExpressRequest extends NodeRequest {
  readonly method: string;
  readonly url: string;
  readonly originalUrl: string;
  readonly baseUrl: string;
  readonly path: string;
  readonly hostname: string;
  readonly params: any;
  readonly query: any;
  readonly body: any;
  get(name: string): string | undefined;
}

/** A Fastify request, as `resource` gets it. */
export interface FastifyRouteRequest extends FastifyRequest {
  readonly id: string;
  readonly originalUrl: string;
  readonly hostname: string;
  readonly params: any;
  readonly query: any;
  readonly body: any;
}

/** A Hono context, as `resource` gets it. */
export interface HonoRouteContext extends HonoContext {
  readonly req: {
    readonly raw: Request;
    readonly method: string;
    readonly url: string;
    readonly path: string;
    param(name: string): any;
    query(name: string): string | undefined;
    header(name: string): string | undefined;
  };
  get(name: string): any;
}
