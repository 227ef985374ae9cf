import { LeaseholdError } from "../common/errors.js";
import { isAborted, reasonOf } from "../common/signals.js";
import type { Call } from "../host/calls.js";
import type { LockHost } from "../host/lock-host.js";
import type { Tenure } from "../host/tenure.js";

/** Makes a lease of a tenure for the caller that got it. */
export type Lessor<L> = (host: LockHost, tenure: Tenure, waited: number) => L;

/**
 * Returns the lease that an acquisition got, made by `make`; `undefined` if it got none. Throws the call's
 * error, or the reason of a signal that was aborted meanwhile.
 */
export function leaseOf<L>(
  host: LockHost,
  { answer: tenure, error, waited }: Call<Tenure>,
  signal: AbortSignal | undefined,
  make: Lessor<L>,
): L | undefined {
  if (error !== undefined) {
    throw error;
  }
  if (tenure === undefined) {
    return undefined;
  }
  if (isAborted(signal)) {
    // The answer came just before the abort. No caller will get the lease, so release it.
    host.release(tenure).catch(() => {});
    throw reasonOf(signal);
  }
  host.begun(tenure);
  return make(host, tenure, waited);
}

/** Throws the error of a caller that waited in vain. `others` kept the lock. */
export function timedOut(name: string, others: string, wait: number): never {
  const who = `lock ${JSON.stringify(name)}: ${others} kept it`;
  throw new LeaseholdError("timeout", `${who} for the whole timeout of ${wait} ms`);
}

/** A lease, a permit or a bundle, which `using` releases. */
interface Held {
  readonly signal: AbortSignal;
  release(): Promise<unknown>;
}

/**
 * Runs work with a lease that is being acquired, and releases it, even if the work throws: see `Lock.using`.
 */
export async function use<H extends Held, T>(
  acquired: Promise<H>,
  work: (held: H, signal: AbortSignal) => T | PromiseLike<T>,
): Promise<T> {
  const held = await acquired;
  const { signal } = held;
  let result: T;
  try {
    result = await work(held, signal);
  } catch (error) {
    // The work's own error says more than the error of its release.
    await held.release().catch(() => {});
    throw error;
  }
  await held.release().catch((error: unknown) => {
    // The reason of a loss says more, too.
    throw signal.aborted ? signal.reason : error;
  });
  return result;
}
