import { LeaseholdError } from "../common/errors.js";

/**
 * Refuses a method that was taken off its object, such as by `const { acquire } = lock`, in words that
 * are not those of the language.
 *
 * @param call the method, of an object called as it would be: `lock.acquire`
 */
export function checkAttached(self: unknown, made: Function, call: string): void {
  if (!(self instanceof made)) {
    const [object] = call.split(".");
    const message = `${call} was called without its ${object}: call it as ${call}(…), or pass (…) => ${call}(…) on`;
    throw new LeaseholdError("config", message);
  }
}
