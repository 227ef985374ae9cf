/**
 * The errors of `leasehold` alone, for code that handles errors and takes no locks.
 *
 * @packageDocumentation
 */
export { LeaseholdError, LeaseLostError, type ErrorCode, type LossReason } from "./common/errors.js";
