import { type Kind, readOptions } from "../../common/check.js";
import { LeaseholdError } from "../../common/errors.js";
import { type Entered, Gate } from "../gate.js";
import { tokenOf } from "../token.js";
import { badToken, type Problem, problemOf, required } from "./problem.js";

/** The name of the header with the token, in plain digits. */
export const FENCING_TOKEN = "Fencing-Token";

/** What a fence of HTTP requests goes by. */
export interface FenceOptions<R> {
  /**
   * What remembers the tokens; its own if none is given. All that writes to the same resources must
   * share one. It is in this process's memory: several instances of a service that share their state
   * need a guard at the store.
   */
  readonly gate?: Gate;
  /**
   * What a request writes to; nothing if it writes to nothing and passes unguarded. By default its
   * path, unless its method is safe: {@link writtenPath}.
   *
   * All requests that write to the same thing must get the *same* name, however they spell it: to
   * Express `/account/7`, `/Account/7` and `/account/7/` are the same. Best take the name from what
   * the handler will go by, such as the parameters of the route.
   */
  readonly resource?: (request: R) => string | null | undefined;
  /** Lets requests without a token pass, unguarded. For the time until all clients send one. */
  readonly optional?: boolean;
  /**
   * Checks each request as it comes and holds nothing: an older one that passed before can write
   * after a newer one. For services that check again at the write, and wish to refuse early.
   */
  readonly checkOnly?: boolean;
}

/** What is read of a request. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  /** Several are joined by commas. */
  readonly header: string | null | undefined;
  /** Aborted when the client has gone. */
  readonly signal?: AbortSignal;
}

/** A request passes, and is to be released when it has been handled; or it does not. */
export type Outcome = Entered | Problem;

/** Of a request that writes to nothing, or that holds nothing. */
export const UNGUARDED: Entered = { release() {} };

export function isProblem(outcome: Outcome): outcome is Problem {
  return "status" in outcome;
}

/** Makes what decides on requests. Throws code `config` if an option is not valid. */
export function admitter<R>(
  options: FenceOptions<R> = {},
): (request: R, seen: Seen) => Promise<Outcome> {
  const read = readOptions("the options of a fence", options, FENCE_OPTIONS);
  const { gate = new Gate(), resource, optional, checkOnly } = read;
  if (!(gate instanceof Gate)) {
    throw new LeaseholdError("config", "the gate of a fence is a Gate");
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

const FENCE_OPTIONS: Readonly<Record<keyof FenceOptions<never>, Kind>> = {
  gate: "any",
  resource: "function",
  optional: "boolean",
  checkOnly: "boolean",
};

function tokenIn(header: string): number | Problem {
  if (header.includes(",")) {
    return badToken("there are several headers Fencing-Token");
  }
  try {
    return tokenOf(header);
  } catch (error) {
    return badToken(`${FENCING_TOKEN}: ${(error as Error).message}`);
  }
}

/**
 * The path of a request that may write, without the query: undefined if its method is safe (GET,
 * HEAD, OPTIONS, TRACE). Percent encoding is undone, so that two spellings of one path are one
 * resource; what is not UTF-8 then is replaced. Slashes and letters' case are left as they are.
 */
export function writtenPath(method: string, url: string): string | undefined {
  if (["GET", "HEAD", "OPTIONS", "TRACE"].includes(method.toUpperCase())) {
    return undefined;
  }
  const path = url.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, "").replace(/[?#][^]*$/, "") || "/";
  const bytes: number[] = [];
  for (const part of path.split(/(%[0-9a-f]{2})/i)) {
    if (/^%[0-9a-f]{2}$/i.test(part)) {
      bytes.push(Number.parseInt(part.slice(1), 16));
    } else {
      // One by one: so many arguments as a long path has bytes are too many.
      new TextEncoder().encode(part).forEach((byte) => bytes.push(byte));
    }
  }
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
}
