/**
 * Distributed locks in Redis, with fencing tokens that only grow and a stream of events for each lease.
 *
 * @packageDocumentation
 */
export type { Evaluator, RedisClient, Unsubscribe } from "./adapters/index.js";
export type { Bundle } from "./api/bundle.js";
export type { Claimed } from "./api/claims.js";
export type { LeaseEvents } from "./api/events.js";
export type { Job } from "./api/job.js";
export type { Lease } from "./api/lease.js";
export type { Lock } from "./api/lock.js";
export type { LockSet } from "./api/lock-set.js";
export type { Missed } from "./api/missed.js";
export type { Observer } from "./api/observer.js";
export type {
  AcquireOptions,
  ClaimOptions,
  JobOptions,
  LockerOptions,
  LockOptions,
  LockSetOptions,
  ObserveOptions,
  PermitOptions,
  RenewOptions,
  SemaphoreOptions,
  SharedOptions,
  YieldOptions,
} from "./api/options.js";
export type { Permit } from "./api/permit.js";
export type { RwLock, RwPart } from "./api/rw-lock.js";
export type { Semaphore } from "./api/semaphore.js";
export type { Histogram, Losses, Stats } from "./api/stats.js";
export type { Tenures } from "./api/tenures.js";
export type { Ticket } from "./api/ticket.js";
export type { Turn } from "./api/turn.js";
export type { Turns } from "./api/turns.js";
export { LeaseholdError, LeaseLostError, type ErrorCode, type LossReason } from "./common/errors.js";
export type {
  CompletedInfo,
  Finding,
  HolderInfo,
  Inspection,
  JobInfo,
  LeaseEvent,
  Owner,
  PermitInfo,
  SharedInfo,
  Sharing,
  WaiterInfo,
  WantedInfo,
} from "./common/types.js";
export { init, Locker, MemoryStore } from "./main.js";
