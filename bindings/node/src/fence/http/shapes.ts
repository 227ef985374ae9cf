/** What is needed of a request of Express, or of Node's own servers. */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly socket?: { readonly destroyed?: boolean } | null | undefined;
}

/** What is needed of a response of Express, or of Node's own servers. */
export interface NodeResponse {
  statusCode: number;
  readonly writableEnded: boolean;
  readonly destroyed?: boolean;
  readonly closed?: boolean;
  setHeader(name: string, value: string): unknown;
  // It has many signatures, and all arguments are passed on.
  end(...args: any[]): unknown;
  once(event: "close", listener: () => void): unknown;
}

/** What is needed of a request of Fastify. */
export interface FastifyRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly raw?: NodeRequest;
}

/** What is needed of a reply of Fastify. */
export interface FastifyReply {
  readonly raw: NodeResponse;
  code(status: number): unknown;
  header(name: string, value: string): unknown;
  send(payload: string): unknown;
  hijack(): unknown;
}

/** What is needed of a context of Hono. */
export interface HonoContext {
  readonly req: { readonly raw: Request };
  /** The answer, once there is one. */
  readonly res?: { readonly status: number };
}

// What each framework passes to `resource`, where that does not declare a type of its own. Declared here,
// so that no framework has to be installed for the types. What depends on the route is `any`.

/** A request of Express. */
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

/** A request of Fastify, on its way to a handler. */
export interface FastifyRouteRequest extends FastifyRequest {
  readonly id: string;
  readonly originalUrl: string;
  readonly hostname: string;
  readonly params: any;
  readonly query: any;
  readonly body: any;
}

/** A context of Hono, on its way to a handler. */
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
