import { LeaseholdError } from "../common/errors.js";

/**
 * Refuses the call of a method that was taken off its object, such as by `const { acquire } = lock`,
 * with a clearer message than JavaScript's own.
 *
 * @param call the method as a program would write it: `lock.acquire`
 */
export function checkAttached(self: unknown, made: Function, call: string): void {
  if (!(self instanceof made)) {
    const [object] = call.split(".");
    const message = `${call} was called without its ${object}: call it as ${call}(…), or pass (…) => ${call}(…) on`;
    throw new LeaseholdError("config", message);
  }
}
