import { config } from "../common/check.js";
import { keepAlive, startTimer, stopTimer, type Timer } from "../common/platform.js";
import { messageOf } from "../common/printable.js";
import type { Adapter, Link } from "./adapter.js";

/** Until a connection can be used takes several requests, each of which has the `connectTimeout`. */
export const OPEN_LIMITS = 2;
/** For a `PING` of a connection that we made, in milliseconds. */
export const PING_LIMIT = 1_000;

export function nothing(): void {}

/** Watches a client without a connection: its link is up at once, and stays so. */
export function alwaysUp(link: Link): () => void {
  link.up();
  return nothing;
}

/** The error of a client that says nothing more exact. */
export function closed(): Error {
  return new Error("the connection is closed");
}

export function errorOf(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(messageOf(reason));
}

export { keepAlive as keepTimer, now, stopTimer, type Timer } from "../common/platform.js";

export function later(milliseconds: number, act: () => void, alive = false): Timer {
  const timer = startTimer(act, milliseconds);
  keepAlive(timer, alive);
  return timer;
}

/** No answer came in time. */
export class Late extends Error {}

/**
 * Rejects with {@link Late} if the answer takes longer. The process stays alive for the timer only if
 * `alive` is true.
 */
export function within<T>(
  milliseconds: number,
  answer: Promise<T>,
  what: string,
  alive = false,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = () => reject(new Late(`${what} within ${milliseconds} ms`));
    const timer = later(milliseconds, late, alive);
    answer.then(resolve, reject).finally(() => stopTimer(timer));
  });
}

/** Makes an adapter's `suspect`: it checks the connection, one check at a time, or replaces a demoted one at once. */
export function suspecting(check: () => Promise<unknown>, replace: () => void): NonNullable<Adapter["suspect"]> {
  let checking: Promise<unknown> | undefined;
  return (demoted = false) => {
    if (demoted) {
      replace();
    } else {
      checking ??= check().finally(() => (checking = undefined));
    }
  };
}

/**
 * The list of strings that a script returned, as strings: clients may be set to return buffers, and some
 * return a number for what looks like one. What is no list stays as it is.
 */
export function texts(reply: unknown): unknown {
  return Array.isArray(reply) ? reply.map(text) : reply;
}

/** The same of one string. */
export function text(value: unknown): unknown {
  if (typeof value === "string") {
    return value;
  }
  if (value instanceof Uint8Array) {
    return new TextDecoder().decode(value);
  }
  return typeof value === "bigint" || Number.isSafeInteger(value) ? String(value) : value;
}

/**
 * Connects a client soon, unless the program does: `Locker.from(client)` may come just before
 * `client.connect()`, which both clients refuse the second time.
 */
export function startSoon(idle: () => boolean, connect: () => unknown, link: Link): () => void {
  if (!idle()) {
    return nothing;
  }
  const start = async () => {
    if (idle()) {
      await connect();
    }
  };
  let stopped = false;
  const timer = startTimer(() => void start().catch((error) => stopped || link.down(error)), 0);
  return () => {
    stopped = true;
    stopTimer(timer);
  };
}

/** A server's address, from a place that clients do not promise to have. */
export function address(read: () => unknown): string | undefined {
  try {
    const value = read();
    return typeof value === "string" && value !== "" ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The passwords among these, to be hidden. */
export function secretsOf(...values: unknown[]): string[] {
  return values.filter((value): value is string => typeof value === "string" && value !== "");
}

/** Refuses a client whose own settings put something in front of its keys. */
export function refusePrefix(client: string, prefixes: readonly unknown[], such = ""): void {
  if (prefixes.some((prefix) => (prefix as { length?: number } | undefined)?.length)) {
    throw config(
      `the ${client} client has a keyPrefix, with which processes would not exclude one another and locks could not be ` +
        `listed; give one without it${such}, and set leasehold's own namespace option instead`,
    );
  }
}

/** Whether a text has one of these secrets in it, and must not be shown. */
export function holdsSecret(text: string, secrets: readonly (string | undefined)[]): boolean {
  return secrets.some((secret) => secret && text.includes(secret));
}

/** A value of the program as a text; empty if reading it throws. */
export function textOf(value: unknown): string {
  try {
    return String(value);
  } catch {
    return "";
  }
}

/** A pause that doubles with each try, up to the slowest; varied by a quarter so that not all come at once. */
export function grown(first: number, tries: number, slowest: number): number {
  return Math.min(first * 2 ** Math.min(tries, 20), slowest) * (0.75 + Math.random() / 2);
}
