/**
 * A distributed lock that tells the truth: fencing tokens that only grow, and a stream of what
 * happens to each lease.
 *
 * @packageDocumentation
 */
export { LeaseholdError, LeaseLostError, type ErrorCode } from "./common/errors.js";
export type { LeaseEvents } from "./api/events.js";
export type { Lease } from "./api/lease.js";
export type { Lock } from "./api/lock.js";
export { Locker } from "./api/locker.js";
export type { AcquireOptions, LockerOptions, LockOptions, RenewOptions } from "./api/options.js";
export type { Tenures } from "./api/tenures.js";
export type {
  HolderInfo,
  Finding,
  Inspection,
  LeaseEvent,
  LossReason,
  Owner,
  WaiterInfo,
} from "./common/types.js";
export type { Evaluator, RedisClient, Unsubscribe } from "./adapters/index.js";
export { init } from "./module/wasm.js";
