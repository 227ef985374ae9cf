import type { LossReason } from "../common/errors.js";
import type { Suspicion } from "../store/store.js";
import type { Tenure } from "./tenure.js";

/** What the engine's outputs ask for. It is done only after all outputs are taken. */
export interface Effects {
  /** Requests. */
  readonly sends: number[];
  readonly losses: [tenure: Tenure, reason: LossReason][];
  readonly wakes: number[];
  /** Servers whose messages are to be heard. */
  readonly subscribes: number[];
  readonly suspicions: Suspicion[];
}

export function noEffects(): Effects {
  return { sends: [], losses: [], wakes: [], subscribes: [], suspicions: [] };
}
