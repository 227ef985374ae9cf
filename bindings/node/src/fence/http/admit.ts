import { checkString, type OptionKind, readOptions, shown } from "../../common/check.js";
import { LeaseholdError } from "../../common/errors.js";
import { type Entered, Gate } from "../gate.js";
import { tokenOf } from "../token.js";
import { badToken, type Problem, problemOf, required } from "./problem.js";

/** The name of the header with the token, in plain digits. */
export const FENCING_TOKEN = "Fencing-Token";

/**
 * Options of a fence around HTTP requests. The fence must come after the authentication: see {@link
 * fenceExpress}.
 */
export interface FenceOptions<R> {
  /**
   * The gate that remembers the tokens; by default a new one.
   *
   * Everything that writes to the same resources must share one gate. It lives in this process's memory:
   * several instances of a service that share their state need a guard at the store.
   */
  readonly gate?: Gate;
  /**
   * Returns the resource that a request writes to. A request for which it returns `undefined` or `null`
   * writes to nothing and passes unguarded. By default it is the request's path, unless its method is safe:
   * {@link writtenPath}.
   *
   * All requests that write to the same thing must get the *same* name, however they spell it: to Express
   * `/account/7`, `/Account/7` and `/account/7/` are the same. It is best to take the name from what the
   * handler uses, such as the route's parameters.
   */
  readonly resource?: (request: R) => string | null | undefined;
  /** True to let requests without a token pass unguarded. Use it until all clients send a token. */
  readonly optional?: boolean;
  /**
   * True to check each request only on arrival, without holding the resource.
   *
   * An older request that passed before can then write after a newer one. Use it in services that check again
   * at the write and want to refuse early.
   */
  readonly checkOnly?: boolean;
}

/** The parts of a request that the fence reads. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  /** The header with the token. Several headers are joined by commas. */
  readonly header: string | null | undefined;
  /** A signal that is aborted when the client has disconnected. */
  readonly signal?: AbortSignal;
}

/** The fence's decision: the request passes, and must be released when it was handled; or it is refused. */
export type Outcome = Entered | Problem;

/** The right of a request that passes and holds nothing. */
export const UNGUARDED: Entered = { release() {} };

/**
 * Ends an answered request.
 *
 * A request whose answer says that it was not carried out has written nothing. So its token does not count
 * for a resource that the gate did not remember. Rust's layer has the same list.
 */
export function finish(entered: Entered, status: number | undefined): void {
  if (entered.withdraw && status !== undefined && WROTE_NOTHING.has(status)) {
    entered.withdraw();
  } else {
    entered.release();
  }
}

const WROTE_NOTHING: ReadonlySet<number> = new Set([401, 403, 404, 405, 410]);

export function isProblem(outcome: Outcome): outcome is Problem {
  return "status" in outcome;
}

/**
 * Makes the function that admits or refuses requests. Throws a `LeaseholdError` with the code `config` if an
 * option is not valid.
 */
export function admitter<R>(
  options: FenceOptions<R> = {},
): (request: R, seen: Seen) => Promise<Outcome> {
  const read = readOptions("the options of a fence", options, FENCE_OPTIONS);
  const { gate = new Gate(), resource, optional, checkOnly } = read;
  if (!(gate instanceof Gate)) {
    throw new LeaseholdError("config", `the options of a fence: gate must be a Gate; got ${shown(gate)}`);
  }
  return async (request, seen) => {
    const name = resource ? resource(request) : writtenPath(seen.method, seen.url);
    if (name === undefined || name === null) {
      return UNGUARDED;
    }
    if (seen.header === undefined || seen.header === null) {
      return optional ? UNGUARDED : required();
    }
    const token = tokenIn(seen.header);
    if (typeof token !== "number") {
      return token;
    }
    try {
      if (checkOnly) {
        gate.check(name, token);
        return UNGUARDED;
      }
      return await gate.enter(name, token, { signal: seen.signal });
    } catch (error) {
      if (error instanceof LeaseholdError) {
        return problemOf(error);
      }
      throw error;
    }
  };
}

const FENCE_OPTIONS: Readonly<Record<keyof FenceOptions<never>, OptionKind>> = {
  gate: "any",
  resource: "function",
  optional: "boolean",
  checkOnly: "boolean",
};

function tokenIn(header: string): number | Problem {
  if (header.includes(",")) {
    return badToken("the request has several Fencing-Token headers: send exactly one");
  }
  try {
    return tokenOf(header);
  } catch (error) {
    return badToken(`${FENCING_TOKEN}: ${(error as Error).message}`);
  }
}

/**
 * Returns the path of a request that may write, without the query; `undefined` if its method is safe (GET,
 * HEAD, OPTIONS, TRACE).
 *
 * It decodes percent encoding, so that two spellings of a path are one resource, and replaces bytes that are
 * not UTF-8. Slashes and the case of letters stay as they are.
 */
export function writtenPath(method: string, url: string): string | undefined {
  checkString("the method", method);
  checkString("the URL", url);
  if (["GET", "HEAD", "OPTIONS", "TRACE"].includes(method.toUpperCase())) {
    return undefined;
  }
  const path = url.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, "").replace(/[?#][^]*$/, "") || "/";
  const bytes: number[] = [];
  for (const part of path.split(/(%[0-9a-f]{2})/i)) {
    if (/^%[0-9a-f]{2}$/i.test(part)) {
      bytes.push(Number.parseInt(part.slice(1), 16));
    } else {
      // The bytes are pushed one by one, because a long path has too many bytes for the arguments of one call.
      new TextEncoder().encode(part).forEach((byte) => bytes.push(byte));
    }
  }
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
}
