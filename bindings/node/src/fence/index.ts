/**
 * Guards: storage that refuses stale fencing tokens.
 *
 * A lease alone cannot stop a process that was paused past its deadline from finishing a write. The storage
 * can, by one rule, which it applies atomically with the write:
 *
 * 1. A write with token t to a resource is refused if a greater token was seen for that resource.
 * 2. An equal token passes, because a holder writes many times.
 * 3. After t was accepted, no smaller token ever passes.
 *
 * A *resource* is whatever one sequence of tokens protects, usually what the lock is named after: 1 to 512
 * bytes of UTF-8. The tokens of a resource must come from one lock. A holder should show its token before it
 * reads: in SQL inside the transaction, in Redis in one script.
 *
 * A refusal is a {@link StaleTokenError}. Programs that use the Rust crate `leasehold` and programs that use
 * this package fence one another, because keys, tables and answers are the same.
 *
 * @module
 */

export { type ErrorCode, LeaseholdError } from "../common/errors.js";
export * from "./gate.js";
export * from "./http/index.js";
export * from "./redis/index.js";
export * from "./sql/index.js";
export { StaleTokenError } from "./stale.js";
export type { Token } from "./token.js";
