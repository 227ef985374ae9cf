import { config, shown } from "../../common/check.js";
import { LeaseholdError } from "../../common/errors.js";
import { StaleTokenError } from "../stale.js";
import { tokenOf } from "../token.js";

/**
 * The types of problem documents. They are names, not addresses: RFC 9457 recommends absolute URIs, which
 * need not resolve.
 */
const STALE = "urn:leasehold:stale-token";
const REQUIRED = "urn:leasehold:token-required";
const BAD = "urn:leasehold:bad-request";
const OVERLOADED = "urn:leasehold:overloaded";

/** A refusal as a problem document (RFC 9457), as Rust's `FenceLayer` sends it. */
export interface Problem {
  /** The HTTP status. */
  readonly status: number;
  /** The HTTP headers, with names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** The document as JSON. */
  readonly body: string;
}

/**
 * Returns the answer to a guard's error: 409 for a stale token, 503 if too many writes wait, and 400 for a
 * bad resource.
 */
export function problemOf(error: LeaseholdError): Problem {
  if (typeof error?.message !== "string") {
    throw config(`the error must be one of a guard; got ${shown(error)}`);
  }
  if (error instanceof StaleTokenError) {
    const { resource, offered, highest } = error;
    const more = { resource, offered, highest };
    return problem(409, STALE, "Stale fencing token", error.message, more);
  }
  return error.code === "overloaded"
    ? problem(503, OVERLOADED, "Too many writes", error.message)
    : problem(400, BAD, "Bad resource", error.message);
}

/** Returns the refusal of a request without a token. */
export function required(): Problem {
  const detail = "the request lacks the header Fencing-Token: set it to the token of your lease";
  return problem(428, REQUIRED, "No fencing token", detail);
}

/** Returns the refusal of a malformed token, or of several tokens. */
export function badToken(detail: string): Problem {
  return problem(400, BAD, "Bad fencing token", detail);
}

function problem(status: number, type: string, title: string, detail: string, more?: object): Problem {
  return {
    status,
    headers: {
      "content-type": "application/problem+json",
      ...(type === OVERLOADED && { "retry-after": "1" }),
    },
    body: JSON.stringify({ type, title, status, detail, ...more }),
  };
}

/** Returns a problem document as a `Response`, for fetch handlers. */
export function responseOf({ status, headers, body }: Problem): Response {
  return new Response(body, { status, headers });
}

/**
 * Converts an answer of a fenced service back into the error that it stands for; `undefined` if it is not a
 * refusal of a fence. The body is JSON, as text or parsed.
 *
 * - 409 gives a {@link StaleTokenError}.
 * - 428 and 400 give a {@link LeaseholdError} with the code `config`.
 * - 503 gives a {@link LeaseholdError} with the code `overloaded`.
 *
 * It reads answers of this package and of Rust's layer.
 *
 * ```ts
 * const response = await fetch(url, withToken(lease, { method: "PUT", body }));
 * if (!response.ok) throw refusal(response.status, await response.text()) ?? new Error("…");
 * ```
 */
export function refusal(status: number, body: unknown): LeaseholdError | undefined {
  const type = TYPES[status];
  const read = type === undefined ? undefined : parsed(body);
  if (!read || read["type"] !== type) {
    return undefined;
  }
  if (type === STALE) {
    return staleOf(read);
  }
  const detail = typeof read["detail"] === "string" ? read["detail"] : "";
  return new LeaseholdError(type === OVERLOADED ? "overloaded" : "config", detail);
}

const TYPES: Record<number, string> = { 409: STALE, 428: REQUIRED, 400: BAD, 503: OVERLOADED };

function staleOf({ resource, offered, highest }: Record<string, unknown>): StaleTokenError | undefined {
  if (typeof resource !== "string" || typeof offered !== "number" || typeof highest !== "number") {
    return undefined;
  }
  try {
    return new StaleTokenError(resource, tokenOf(offered), tokenOf(highest));
  } catch {
    return undefined;
  }
}

function parsed(body: unknown): Record<string, unknown> | undefined {
  try {
    const read: unknown = typeof body === "string" ? JSON.parse(body) : body;
    return typeof read === "object" && read !== null ? (read as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
