import { Late } from "./shared.js";

/** A server's refusal in its own words, or what went wrong on the way to it. */
export type Failure =
  | { readonly reply: string }
  | { readonly code: "unavailable" | "timeout" | "tls" | "overloaded" | "store"; readonly message: string };

/**
 * Tells a server's refusal from a client's own failure, for every client that there is an adapter
 * for. No class can be imported to compare with, and bundlers rename classes, so names, properties
 * and words decide.
 */
export function failure(error: unknown): Failure {
  try {
    return judged(error);
  } catch {
    // Reading what was thrown throws again.
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
  // Ahead of replies: Upstash's error for a gateway's page is of the class of its refusals.
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

/** Matches a refusal of the first PING itself. Any other refusal is of more than that command, such as the user. */
export const PING_REFUSED = /^NOPERM|^ERR unknown command/;

/** Resolves if the server replies: if it refuses a PING, in such words, the connection works all the same. */
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

/** ioredis; node-redis from 4 to 6; Upstash. */
const REPLIES = new Set(["ReplyError", "ErrorReply", "SimpleError", "BlobError", "UpstashError"]);

/** `NOSCRIPT No matching script`, but neither `The client is closed` nor `ECONNREFUSED` alone. */
const LIKE_A_REPLY = /^[A-Z][A-Z0-9_]+ \S/;

/** Codes of Node's and of OpenSSL's: one side of TLS does not trust the other. */
const TLS_ERROR = /^(CERT_|ERR_TLS_CERT|DEPTH_ZERO_SELF|SELF_SIGNED|UNABLE_TO_(VERIFY|GET)|ERR_SSL_.*ALERT)/;

/** ioredis. */
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
  // A gateway's page in place of an answer.
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

/** Characters of a message that are looked at; far fewer of them are shown. */
const LONGEST_MESSAGE = 65_536;

function short(message: unknown): string {
  return String(message).slice(0, LONGEST_MESSAGE);
}

/** The error inside one that only says that something else went wrong. */
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
