import { nameBytes } from "../../../../core/engine/src/limits.jsonc";
import { config } from "../common/check.js";
import type { LeaseholdError } from "../common/errors.js";

/** Throws a {@link LeaseholdError} of code `config` unless it is 1 to 512 bytes of UTF-8. */
export function checkResource(resource: unknown): asserts resource is string {
  if (typeof resource !== "string") {
    const what = resource === null ? "null" : typeof resource;
    throw config(`a resource's name is a string, not ${what}`);
  }
  // Each is encoded as the same replacement, so different names would become one.
  if (/\p{Surrogate}/u.test(resource)) {
    throw config("a resource's name is Unicode; this one has a lone surrogate");
  }
  const length = new TextEncoder().encode(resource).length;
  if (length < 1 || length > nameBytes) {
    throw config(`a resource's name must be 1 to ${nameBytes} bytes long; got ${length} bytes`);
  }
}
