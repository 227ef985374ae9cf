import { Late } from "./shared.js";

/** A server's refusal in its own words, or the failure that prevented a reply. */
export type Failure =
  | { readonly reply: string }
  | { readonly code: "unavailable" | "timeout" | "tls" | "overloaded" | "store"; readonly message: string };

/**
 * Tells a server's refusal from a client's own failure, for every supported client.
 *
 * Names, properties and messages decide. There is no class to compare with: importing one would need the
 * package, and bundlers rename classes.
 */
export function failure(error: unknown): Failure {
  try {
    return judged(error);
  } catch {
    // Reading the error throws again.
    return { code: "store", message: "an error that cannot be read" };
  }
}

function judged(error: unknown): Failure {
  const { message, code, names } = described(error);
  const inner = cause(error, names);
  if (inner !== undefined) {
    return judged(inner);
  }
  const any = (of: ReadonlySet<string>) => names.some((name) => of.has(name));
  if (code !== undefined && TLS_ERROR.test(code)) {
    return { code: "tls", message };
  }
  if (error instanceof Late || names.includes("TimeoutError") || TIMED_OUT.test(message)) {
    return { code: "timeout", message };
  }
  // Before the check for replies: Upstash's error for a gateway's page has the class of its refusals.
  if (any(LINK_ERRORS)) {
    return { code: "unavailable", message };
  }
  if (any(REPLIES) || (code === undefined && LIKE_A_REPLY.test(message))) {
    const reply = message.replace(/, command was: [^]*$/, "");
    return { reply: reply.replace(/^Unauthorized/, "NOAUTH $&") };
  }
  if (/queue is full/i.test(message)) {
    return { code: "overloaded", message };
  }
  return { code: code !== undefined || LINK_WORDS.test(message) ? "unavailable" : "store", message };
}

/**
 * Matches a refusal of the first PING command itself. Any other refusal concerns more than that command, such
 * as the user.
 */
export const PING_REFUSED = /^NOPERM|^ERR unknown command/;

/** Resolves if the server replies. A refusal that matches `refusal` is a reply, too: the connection works. */
export async function answered(reply: Promise<unknown>, refusal = /^/): Promise<void> {
  try {
    await reply;
  } catch (error) {
    const failed = failure(error);
    if (!("reply" in failed && refusal.test(failed.reply))) {
      throw error;
    }
  }
}

/** The error classes for refusals of ioredis, of node-redis 4 to 6, and of Upstash. */
const REPLIES = new Set(["ReplyError", "ErrorReply", "SimpleError", "BlobError", "UpstashError"]);

/** Matches `NOSCRIPT No matching script`, but not `The client is closed` or a bare `ECONNREFUSED`. */
const LIKE_A_REPLY = /^[A-Z][A-Z0-9_]+ \S/;

/** Codes of Node and OpenSSL for a TLS connection in which one side does not trust the other. */
const TLS_ERROR = /^(CERT_|ERR_TLS_CERT|DEPTH_ZERO_SELF|SELF_SIGNED|UNABLE_TO_(VERIFY|GET)|ERR_SSL_.*ALERT)/;

/** The message of an ioredis timeout. */
const TIMED_OUT = /^Command timed out/;

const LINK_ERRORS = new Set([
  "AbortError",
  "InterruptError",
  "MaxRetriesPerRequestError",
  "ClusterAllFailedError",
  "ClientClosedError",
  "ClientOfflineError",
  "ConnectionTimeoutError",
  "DisconnectsClientError",
  "MaxCommandRedirectionsError",
  "ReconnectStrategyError",
  "RootNodesUnavailableError",
  "SocketClosedUnexpectedlyError",
  "SocketTimeoutError",
  // A gateway's page instead of a reply.
  "UpstashJSONParseError",
]);

const LINK_WORDS = new RegExp(
  [
    "connection",
    "disconnect",
    "socket",
    "sentinel",
    "stream isn't writeable",
    "client is (closed|offline)",
    "cluster (isn't ready|is closed)",
    "no node of the cluster",
    "(all the root|startup) nodes",
    "slots cache",
    "too many cluster redirections",
    "max retries per request",
    "fetch failed",
    "failed to fetch",
    "network",
    "exhausted all retries",
    "was aborted",
  ].join("|"),
  "i",
);

interface Described {
  readonly message: string;
  /** A code of the operating system or of Node, such as `ECONNREFUSED`. */
  readonly code: string | undefined;
  /** The names of the error and of its classes. */
  readonly names: readonly string[];
}

function described(error: unknown): Described {
  if (typeof error !== "object" || error === null) {
    return { message: short(error), code: undefined, names: [] };
  }
  const { message, code, name } = error as Record<"message" | "code" | "name", unknown>;
  const names = new Set([String(name)]);
  for (let is = Object.getPrototypeOf(error); is && is !== Object.prototype; is = Object.getPrototypeOf(is)) {
    names.add(String(is.constructor?.name));
  }
  return {
    message: short(message ?? "") || short(code ?? name ?? "an error without a message"),
    code: typeof code === "string" ? code : undefined,
    names: [...names],
  };
}

/** The number of characters of a message that are examined. Far fewer are shown. */
const LONGEST_MESSAGE = 65_536;

function short(message: unknown): string {
  return String(message).slice(0, LONGEST_MESSAGE);
}

/** Returns the cause of an error that only says that another error happened. */
function cause(error: unknown, names: readonly string[]): unknown {
  const wraps = error as Record<"errors" | "cause" | "lastNodeError" | "socketError", unknown> | null;
  if (names.includes("AggregateError") && Array.isArray(wraps?.errors)) {
    return wraps.errors[0];
  }
  if (names.includes("ClusterAllFailedError")) {
    return wraps?.lastNodeError;
  }
  if (names.includes("ReconnectStrategyError")) {
    return wraps?.socketError;
  }
  // undici's `TypeError: fetch failed` says nothing else.
  const inner = wraps?.cause as { code?: unknown } | undefined;
  const failedFetch = names.includes("TypeError") && described(error).message === "fetch failed";
  return failedFetch && typeof inner?.code === "string" ? inner : undefined;
}
