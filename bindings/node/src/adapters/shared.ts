import { config } from "../common/check.js";
import { keepAlive, startTimer, stopTimer, type Timer } from "../common/platform.js";
import { messageOf } from "../common/printable.js";
import type { Adapter, Link } from "./adapter.js";

/**
 * The number of connect timeouts until a connection must be usable. It takes several requests, each of which
 * has the `connectTimeout`.
 */
export const OPEN_LIMITS = 2;
/** The time limit of a `PING` on a connection that this package made, in milliseconds. */
export const PING_LIMIT = 1_000;

export function nothing(): void {}

/** Watches a client without a connection: its link is up at once, and stays up. */
export function alwaysUp(link: Link): () => void {
  link.up();
  return nothing;
}

/** Returns the error for a client that gives no reason. */
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

/** An error that says that no answer came in time. */
export class Late extends Error {}

/**
 * Rejects with {@link Late} if the answer takes longer than the limit. The timer keeps the process alive only
 * if `alive` is true.
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

/**
 * Makes an adapter's `suspect`. It checks the connection, with one check at a time, and replaces a demoted
 * connection at once.
 */
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
 * Returns a script's list of strings as strings. Clients may be set to return buffers, and some return
 * numbers for strings that look like numbers. Anything but a list stays unchanged.
 */
export function texts(reply: unknown): unknown {
  return Array.isArray(reply) ? reply.map(text) : reply;
}

/** Returns one string of a script's result as a string; see {@link texts}. */
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
 * Connects a client soon, unless the program does. `Locker.from(client)` may come just before
 * `client.connect()`, and both client packages refuse a second `connect()`.
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

/** Reads a server's address from a property that clients do not document; `undefined` if it is not there. */
export function address(read: () => unknown): string | undefined {
  try {
    const value = read();
    return typeof value === "string" && value !== "" ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the passwords among these values, which messages must hide. */
export function secretsOf(...values: unknown[]): string[] {
  return values.filter((value): value is string => typeof value === "string" && value !== "");
}

/** Refuses a client whose own settings add a prefix to its keys. */
export function refusePrefix(client: string, prefixes: readonly unknown[], such = ""): void {
  if (prefixes.some((prefix) => (prefix as { length?: number } | undefined)?.length)) {
    throw config(
      `the ${client} client has a keyPrefix, so it would not exclude other processes and its locks could not be ` +
        `listed; give one without it${such}, and set leasehold's own namespace option instead`,
    );
  }
}

/** True if a text contains one of these secrets, so that it must not be shown. */
export function holdsSecret(text: string, secrets: readonly (string | undefined)[]): boolean {
  return secrets.some((secret) => secret && text.includes(secret));
}

/** Returns a value of the program as a string; an empty one if reading it throws. */
export function textOf(value: unknown): string {
  try {
    return String(value);
  } catch {
    return "";
  }
}

/**
 * Returns a pause that doubles with each try, up to the slowest. It varies by a quarter, so that clients do
 * not retry in step.
 */
export function grown(first: number, tries: number, slowest: number): number {
  return Math.min(first * 2 ** Math.min(tries, 20), slowest) * (0.75 + Math.random() / 2);
}
