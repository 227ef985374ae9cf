// The storage that the lock protects: a document. A writer reads all of it, adds a line, and writes all of it.
import { Gate } from "./leasehold/fence.js";

const DOCUMENT = "document";
/** As many lines as the page shows. */
const MOST = 6;

export class Storage {
  /** True if stale tokens are refused. The gate sees all tokens, so it can be switched on at any time. */
  guarded = false;
  /** The lines, the newest last. */
  lines = [];
  #gate = new Gate();
  #count = 0;

  /** Returns the lines. Throws the gate's error for a stale token. */
  read(token) {
    this.#admit(token);
    return this.lines;
  }

  /**
   * Replaces the document with the lines that were read and one more. Returns the new line, and the lines of others that
   * this destroyed because they were not among the lines read. Throws as `read` does.
   */
  write(token, writer, read) {
    this.#admit(token);
    const line = { number: (this.#count += 1), writer, token };
    const known = new Set(read.map(({ number }) => number));
    // Lines that are too old to be shown do not count as lost.
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
