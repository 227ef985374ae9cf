/**
 * A distributed lock that tells the truth: fencing tokens that only grow, and a stream of what
 * happens to each lease.
 *
 * @packageDocumentation
 */
export { LeaseholdError, LeaseLostError, type ErrorCode } from "./errors.js";
export type { LeaseEvents } from "./events.js";
export type { Lease } from "./lease.js";
export type { Lock } from "./lock.js";
export { Locker } from "./locker.js";
export type { AcquireOptions, LockerOptions, LockOptions, RenewOptions } from "./options.js";
export type { Tenures } from "./tenures.js";
export type {
  HolderInfo,
  Finding,
  Inspection,
  LeaseEvent,
  LossReason,
  Owner,
  WaiterInfo,
} from "./types.js";
export type { Evaluator, RedisClient, Unsubscribe } from "./adapters/index.js";
export { init } from "./wasm.js";
