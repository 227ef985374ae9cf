// What the lock is for: a document, of which a writer reads all, adds a line, and writes all.
import { Gate } from "./leasehold/fence.js";

const DOCUMENT = "document";
/** As many lines as the page shows. */
const MOST = 6;

export class Storage {
  /** Whether stale tokens are refused. The gate sees all tokens, so that it can be switched on at any time. */
  guarded = false;
  /** The newest last. */
  lines = [];
  #gate = new Gate();
  #count = 0;

  /** The lines; throws the gate's error for a stale token. */
  read(token) {
    this.#admit(token);
    return this.lines;
  }

  /**
   * Replaces what was read by that and one more line. Returns the line, and which lines of others that
   * destroyed, because they were not in what was read; throws as `read` does.
   */
  write(token, writer, read) {
    this.#admit(token);
    const line = { number: (this.#count += 1), writer, token };
    const known = new Set(read.map(({ number }) => number));
    // Those that were too old to be shown are not lost, but left behind.
    const destroyed = this.lines.filter(({ number }) => !known.has(number));
    this.lines = [...read, line].slice(-MOST);
    return { line, destroyed };
  }

  #admit(token) {
    try {
      this.#gate.check(DOCUMENT, token);
    } catch (error) {
      if (this.guarded) throw error;
    }
  }
}
