import marked from "../../../../../core/src/fence/sql/marked.sql";
import type { Steps } from "./steps.js";

/** Whether the transaction is still the one that was marked, by a savepoint: every end of it takes its savepoints with it. */
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
