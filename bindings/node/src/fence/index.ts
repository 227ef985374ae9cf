/**
 * Guards: storage that refuses a stale token.
 *
 * A lease alone cannot stop a process that was paused past its deadline from finishing a write that
 * it had begun. The storage can, by one rule: *a write with token t to a resource is refused if a
 * greater token was seen for it; an equal one passes, because a holder writes many times; after t was
 * accepted nothing smaller ever passes*, atomically with the write itself.
 *
 * A *resource* is whatever one sequence of tokens protects, most often what the lock is named after:
 * 1 to 512 bytes of UTF-8. The tokens of one resource must come from one lock. A holder should show
 * its token before it reads: in SQL inside the transaction, in Redis in one script.
 *
 * A refusal is a {@link StaleTokenError}. Programs that use the crate `leasehold` in Rust and programs
 * that use this package fence one another: keys, tables and answers are the same.
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
