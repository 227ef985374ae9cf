import { keepAlive, startTimer, stopTimer, type Timer } from "../common/platform.js";
import { messageOf } from "../common/printable.js";
import type { Link } from "./adapter.js";

export function nothing(): void {}

/** Of a client that says nothing more exact. */
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

/** Rejects if the answer takes longer. The timer keeps nothing alive unless it is said to. */
export function within<T>(
  milliseconds: number,
  answer: Promise<T>,
  what: string,
  alive = false,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const late = () => reject(new Error(`${what} within ${milliseconds} ms`));
    const timer = later(milliseconds, late, alive);
    answer.then(resolve, reject).finally(() => stopTimer(timer));
  });
}

/**
 * A script's answer, a list of strings, as strings: clients can be set up to return buffers, and
 * some make numbers of what looks like one.
 */
export function texts(reply: unknown): unknown {
  return Array.isArray(reply) ? reply.map(text) : reply;
}

function text(value: unknown): unknown {
  if (typeof value === "string") {
    return value;
  }
  if (value instanceof Uint8Array) {
    return new TextDecoder().decode(value);
  }
  return typeof value === "bigint" || Number.isSafeInteger(value) ? String(value) : value;
}

/**
 * Starts a client that is not connected yet, unless its owner does: `Locker.from(client)` may come
 * just before `client.connect()`, which both clients refuse the second time.
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

/** The passwords among these, to be hidden. */
export function secretsOf(...values: unknown[]): string[] {
  return values.filter((value): value is string => typeof value === "string" && value !== "");
}

/** Whether a text is not to be shown, since one of these is in it. */
export function holdsSecret(text: string, secrets: readonly (string | undefined)[]): boolean {
  return secrets.some((secret) => secret && text.includes(secret));
}

/** What a program hands over as a text; nothing is said in what is none. */
export function textOf(value: unknown): string {
  try {
    return String(value);
  } catch {
    return "";
  }
}

/** Grows from the first to the slowest, with a quarter of chance so that not all come at once. */
export function grown(first: number, tries: number, slowest: number): number {
  return Math.min(first * 2 ** Math.min(tries, 20), slowest) * (0.75 + Math.random() / 2);
}
