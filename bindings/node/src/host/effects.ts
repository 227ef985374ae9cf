import type { LossReason } from "../common/errors.js";
import type { Tenure } from "./tenure.js";

/** What the engine's outputs ask for. It is done only after all outputs are taken. */
export interface Effects {
  /** Requests and their deadlines. */
  readonly sends: [request: number, deadline: number][];
  readonly losses: [tenure: Tenure, reason: LossReason][];
  readonly wakes: number[];
  subscribes: boolean;
}

export function noEffects(): Effects {
  return { sends: [], losses: [], wakes: [], subscribes: false };
}
