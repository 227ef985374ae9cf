import { attempt, checkFunction, config, shown } from "../../common/check.js";
import type { Entered } from "../gate.js";
import { type Token, tokenOf } from "../token.js";
import {
  admitter,
  FENCING_TOKEN,
  type FenceOptions,
  finish,
  isProblem,
  type Outcome,
  type Seen,
  UNGUARDED,
} from "./admit.js";
import { type Problem, responseOf } from "./problem.js";
import type {
  ExpressRequest,
  FastifyReply,
  FastifyRequest,
  FastifyRouteRequest,
  HonoContext,
  HonoRouteContext,
  NodeRequest,
  NodeResponse,
} from "./shapes.js";

export { FENCING_TOKEN, type FenceOptions, writtenPath } from "./admit.js";
export { type Problem, problemOf, refusal } from "./problem.js";
export type * from "./shapes.js";

/** Milliseconds that a handler keeps its resource after its client has disconnected. */
const ABANDONED = 30_000;

/**
 * Makes a middleware for Express, and for anything that takes `(req, res, next)`. It refuses requests with a
 * stale token with 409 and a problem document, and lets one request at a time write to a resource.
 *
 * ```ts
 * const fence = fenceExpress({ resource: (req) => `account/${req.params.id}` });
 * app.put("/account/:id", fence, (req, res) => { … });
 * ```
 *
 * The resource is held until the handler calls `res.end()`; what it does afterwards is not guarded. If the
 * client disconnects and the handler does not answer, the resource is released 30 s later. So give handlers a
 * time limit below 30 s. A newer request waits while an older one is handled. An older request that waits is
 * refused as soon as a newer one arrives. A guarded request is not handled at all if its client disconnects,
 * or something else answers it, before its turn.
 *
 * **Authentication must come first**: register it before the fence, on the same routes, and let each client
 * write only to its own resources. The gate believes every token that it sees. One request with the greatest
 * token, 2^53 - 1, blocks all later writes to its resource. Many such requests for made-up resources fill the
 * gate: its floor rises, and it blocks every resource. Put the fence on the routes that write, not in front
 * of the whole service.
 *
 * A request that is answered with 401, 403, 404, 405 or 410 was not carried out. The gate does not remember a
 * new resource for it, so a handler that gives such an answer must not have written. With `checkOnly` every
 * token counts, because the fence does not wait for the answer.
 */
export function fenceExpress(
  options?: Omit<FenceOptions<never>, "resource"> & { readonly resource?: never },
): (req: NodeRequest, res: NodeResponse, next: (error?: unknown) => void) => void;
export function fenceExpress<R extends NodeRequest = ExpressRequest>(
  options: FenceOptions<R>,
): (req: NoInfer<R>, res: NodeResponse, next: (error?: unknown) => void) => void;
export function fenceExpress<R extends NodeRequest>(
  options: FenceOptions<R> = {},
): (req: R, res: NodeResponse, next: (error?: unknown) => void) => void {
  const admit = admitter(options);
  return (req, res, next) => {
    const handle = async () => {
      const { originalUrl } = req as { originalUrl?: string };
      const outcome = await unlessGone(req, res, (gone) => admit(req, seenBy(req, originalUrl ?? req.url, gone)));
      if (!outcome) {
        return;
      }
      if (isProblem(outcome)) {
        send(res, outcome);
        return;
      }
      releaseAtEnd(res, outcome);
      next();
    };
    handle().catch(next);
  };
}

/**
 * Makes a hook for Fastify with the guarantees of {@link fenceExpress}. As a `preHandler` it runs after the
 * body was read, so a slow client does not hold the resource.
 *
 * **Authentication must come first.** A request that was not carried out leaves no token behind: see {@link
 * fenceExpress}.
 *
 * ```ts
 * fastify.addHook("preHandler", fenceFastify());
 * ```
 */
export function fenceFastify<R extends FastifyRequest = FastifyRouteRequest>(
  options: FenceOptions<R> = {},
): (request: NoInfer<R>, reply: FastifyReply) => Promise<unknown> {
  const admit = admitter(options);
  return async (request, reply) => {
    const outcome = await unlessGone(request.raw, reply.raw, (gone) => admit(request, seenBy(request, request.url, gone)));
    if (!outcome) {
      reply.hijack();
      return reply;
    }
    if (isProblem(outcome)) {
      reply.code(outcome.status);
      for (const [name, value] of Object.entries(outcome.headers)) {
        reply.header(name, value);
      }
      reply.send(outcome.body);
      return reply;
    }
    releaseAtEnd(reply.raw, outcome);
    return undefined;
  };
}

/**
 * Makes a middleware for Hono. It works as {@link fenceExpress} does, except that the resource is held until
 * the handler's promise settles, and only the request's `signal` shows that the client has disconnected.
 *
 * **Authentication must come first.** A request that was not carried out leaves no token behind: see {@link
 * fenceExpress}.
 *
 * ```ts
 * app.use("/account/*", fenceHono());
 * ```
 */
export function fenceHono<C extends HonoContext = HonoRouteContext>(
  options: FenceOptions<C> = {},
): (context: NoInfer<C>, next: () => Promise<void>) => Promise<Response | undefined> {
  const admit = admitter(options);
  return async (context, next) => {
    const { raw } = context.req;
    const outcome = await admit(context, seenOf(raw));
    if (isProblem(outcome)) {
      return responseOf(outcome);
    }
    await heldDuring(outcome, raw.signal, next, () => context.res?.status);
    return undefined;
  };
}

/**
 * Puts a fence around a handler of plain `Request`s, as in Deno, Bun and workers.
 *
 * The resource is held until the handler's promise settles; what a stream in the response does later is not
 * guarded. If the request's `signal` is aborted and the promise has not settled 30 s later, the resource is
 * released. If the signal is aborted before the request's turn, the handler does not run and the call rejects
 * with the signal's reason.
 *
 * **Authentication must come first.** A request that was not carried out leaves no token behind: see {@link
 * fenceExpress}.
 *
 * ```ts
 * Deno.serve(fenceFetch((request) => new Response("written")));
 * ```
 */
export function fenceFetch<A extends unknown[]>(
  handler: (request: Request, ...rest: A) => Promise<Response> | Response,
  options: FenceOptions<Request> = {},
): (request: Request, ...rest: A) => Promise<Response> {
  checkFunction("the handler", handler);
  const admit = admitter(options);
  return async (request, ...rest) => {
    const outcome = await admit(request, seenOf(request));
    return isProblem(outcome)
      ? responseOf(outcome)
      : heldDuring(outcome, request.signal, () => handler(request, ...rest), (response) => response?.status);
  };
}

/**
 * Returns a copy of the options of a `fetch`, or of a `Request`, with the header `Fencing-Token` set. It
 * replaces any such header.
 *
 * It does not check that the lease is still held: the server does. Throws a `LeaseholdError` with the code
 * `config` if there is no valid token, or if the options cannot be read.
 *
 * ```ts
 * await fetch(url, withToken(lease, { method: "PUT", body: "…" }));
 * ```
 */
export function withToken(lease: Token, request: Request): Request;
export function withToken<I extends RequestInit>(lease: Token, init?: I): I & { headers: Headers };
export function withToken(
  lease: Token,
  what: Request | RequestInit = {},
): Request | (RequestInit & { headers: Headers }) {
  const token = String(tokenOf(lease));
  if (typeof what !== "object" || what === null) {
    throw config(`withToken: the options of fetch must be an object; got ${shown(what)}`);
  }
  return attempt("withToken: the options of fetch cannot be read", () => {
    const headers = new Headers(what.headers);
    headers.set(FENCING_TOKEN, token);
    return what instanceof Request ? new Request(what, { headers }) : { ...what, headers };
  });
}

function seenBy(
  { method, headers }: NodeRequest,
  url: string | undefined,
  signal: AbortSignal,
): Seen {
  const header = headers["fencing-token"];
  const joined = Array.isArray(header) ? header.join(", ") : header;
  return { method: method ?? "GET", url: url ?? "/", header: joined, signal };
}

function seenOf({ method, url, headers, signal }: Request): Seen {
  return { method, url, header: headers.get(FENCING_TOKEN), signal };
}

/**
 * Decides, unless the client disconnects first. Resolves to `undefined` if it did: there is nobody to answer.
 */
async function unlessGone(
  req: NodeRequest | undefined,
  res: NodeResponse,
  decide: (gone: AbortSignal) => Promise<Outcome>,
): Promise<Outcome | undefined> {
  const controller = new AbortController();
  const gone = controller.signal;
  // If the client has disconnected already, no event will come. A response that waits behind others on its
  // connection gets no event when the connection ends.
  if (res.writableEnded || res.destroyed || res.closed || req?.socket?.destroyed) {
    controller.abort();
  } else {
    res.once("close", () => controller.abort());
  }
  const decided = await decide(gone).catch((error: unknown) => {
    if (gone.aborted && error === gone.reason) {
      return undefined;
    }
    throw error;
  });
  if (decided === undefined || decided === UNGUARDED || !gone.aborted) {
    return decided;
  }
  if (!isProblem(decided)) {
    // The request is not handled, so it writes nothing.
    (decided.withdraw ?? decided.release)();
  }
  return undefined;
}

function send(res: NodeResponse, { status, headers, body }: Problem): void {
  res.statusCode = status;
  for (const [name, value] of Object.entries(headers)) {
    res.setHeader(name, value);
  }
  res.end(body);
}

/**
 * Releases the resource when the handler answers, because it has written by then. A client that disconnects
 * does not stop a handler, which therefore gets some time to end.
 */
function releaseAtEnd(res: NodeResponse, entered: Entered): void {
  const end = res.end;
  const held = new Held(entered);
  res.end = (...args) => {
    try {
      return end.apply(res, args);
    } finally {
      held.finish(res.statusCode);
    }
  };
  res.once("close", () => {
    if (!res.writableEnded) {
      held.releaseSoon();
    }
  });
}

/** Holds the resource until the promise of the work settles. */
async function heldDuring<T>(
  entered: Entered,
  gone: AbortSignal,
  work: () => Promise<T> | T,
  statusOf: (result: T) => number | undefined,
): Promise<T> {
  const held = new Held(entered);
  const releaseSoon = () => held.releaseSoon();
  gone.addEventListener("abort", releaseSoon);
  // An error does not say what was written before it.
  let status: number | undefined;
  try {
    const result = await work();
    status = statusOf(result);
    return result;
  } finally {
    gone.removeEventListener("abort", releaseSoon);
    held.finish(status);
  }
}

/** A held resource. It is released when its handler ends, or some time after its client has disconnected. */
class Held {
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly entered: Entered) {}

  finish(status: number | undefined): void {
    clearTimeout(this.#timer);
    finish(this.entered, status);
  }

  releaseSoon(): void {
    this.#timer = setTimeout(() => this.entered.release(), ABANDONED);
    (this.#timer as { unref?(): void }).unref?.();
  }
}
