import { LeaseholdError } from "../common/errors.js";

/** Has a class say which objects it made. @internal */
export const MADE: unique symbol = Symbol("made");

/** A class whose methods check what they are called on. */
interface Class {
  readonly prototype: object;
  /** True for an object that this class made: it has a private name, which proxies and objects of the same prototype lack. */
  [MADE](self: object): boolean;
}

/**
 * Refuses the call of a method that was taken off its object, such as by `const { acquire } = lock`,
 * with a clearer message than JavaScript's own.
 *
 * @param call the method as a program would write it: `lock.acquire`
 */
export function checkAttached(self: unknown, made: Class, call: string): void {
  const isObject = typeof self === "object" && self !== null;
  if (isObject && made[MADE](self)) {
    return;
  }
  const [object] = call.split(".");
  const message =
    isObject && looksLike(self, made)
      ? `${call} was called on a proxy or a copy of its ${object}: call it on the ${object} itself`
      : `${call} was called without its ${object}: call it as ${call}(…), or pass (…) => ${call}(…) on`;
  throw new LeaseholdError("config", message);
}

/** True for an object with the methods of the class, and for one that cannot be asked, such as a revoked proxy. */
function looksLike(self: object, { prototype }: Class): boolean {
  try {
    return Object.prototype.isPrototypeOf.call(prototype, self);
  } catch {
    return true;
  }
}
