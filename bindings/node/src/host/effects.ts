import type { LossReason } from "../common/errors.js";
import type { Batch } from "../store/store.js";
import type { Call } from "./calls.js";
import type { Tenure } from "./tenure.js";

/** The actions that the engine's outputs ask for. They run only after all outputs were read. */
export class Effects {
  sends: readonly Batch[] = NONE;
  /** Calls that now have an answer or an error. */
  answered: readonly Call[] = NONE;
  losses: readonly (readonly [tenure: Tenure, reason: LossReason])[] = NONE;
  /** Effects of other kinds. They run last, in the engine's order. */
  others: readonly (() => void)[] = NONE;
}

/** The shared empty list of effects. Usually there are none of a kind, or one. */
const NONE: readonly never[] = [];

/** Returns the list with one more item. */
export function and<T>(list: readonly T[], more: T): readonly T[] {
  return list === NONE ? [more] : push(list as T[], more);
}

function push<T>(list: T[], more: T): T[] {
  list.push(more);
  return list;
}
