import { nameBytes } from "../../../../core/engine/src/limits.jsonc";
import { config } from "../common/check.js";
import type { LeaseholdError } from "../common/errors.js";

/**
 * Checks a resource's name. Throws a {@link LeaseholdError} with the code `config` unless it has 1 to 512
 * bytes of UTF-8.
 */
export function checkResource(resource: unknown): asserts resource is string {
  if (typeof resource !== "string") {
    const what = resource === null ? "null" : typeof resource;
    throw config(`a resource's name must be a string; got ${what}`);
  }
  // Every lone surrogate is encoded as the same replacement, so different names would become one.
  if (/\p{Surrogate}/u.test(resource)) {
    throw config("a resource's name must be valid Unicode; this one has a lone surrogate");
  }
  const length = new TextEncoder().encode(resource).length;
  if (length < 1 || length > nameBytes) {
    throw config(`a resource's name must be 1 to ${nameBytes} bytes long; got ${length} bytes`);
  }
}
