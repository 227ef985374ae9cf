/**
 * The errors of `leasehold`, without the rest of it: for code that handles errors and takes no lock.
 *
 * @packageDocumentation
 */
export { LeaseholdError, LeaseLostError, type ErrorCode, type LossReason } from "./common/errors.js";
