import type { FastifyRequest, HonoContext, NodeRequest } from "./index.js";

// What `resource` is given by each framework, where it does not say itself what it takes. The shapes
// are given here, so that none of the frameworks has to be installed for the types. What depends on
// the route is `any`.

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
