import type { LossReason } from "../common/errors.js";
import type { Batch } from "../store/store.js";
import type { Call } from "./calls.js";
import type { Tenure } from "./tenure.js";

/** What the engine's outputs ask for. It is done only after all outputs are taken. */
export class Effects {
  sends: readonly Batch[] = NONE;
  /** Calls that have an answer or an error by now. */
  answered: readonly Call[] = NONE;
  losses: readonly (readonly [tenure: Tenure, reason: LossReason])[] = NONE;
  /** Effects of other kinds. They come last, in the engine's order. */
  others: readonly (() => void)[] = NONE;
}

/** Most of the time there is nothing of a kind, or one. */
const NONE: readonly never[] = [];

/** A list with one thing more. */
export function and<T>(list: readonly T[], more: T): readonly T[] {
  return list === NONE ? [more] : push(list as T[], more);
}

function push<T>(list: T[], more: T): T[] {
  list.push(more);
  return list;
}
