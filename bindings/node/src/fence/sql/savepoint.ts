import marked from "../../../../../core/src/fence/sql/marked.sql";
import type { Steps } from "./steps.js";

/** Returns true while the marked transaction lasts: its end, of whatever kind, takes its savepoints with it. */
export function* hasSavepoint(isGone: (error: unknown) => boolean): Steps<boolean> {
  try {
    yield { sql: marked };
    return true;
  } catch (error) {
    if (isGone(error)) {
      return false;
    }
    throw error;
  }
}
