import { attempt, checkText, config, MADE } from "../common/check.js";
import { readTicket } from "../module/wasm.js";
import { type Asked, INSPECT, printed } from "./show.js";

/**
 * A held lock on its way to another process: made by `lease.pass()`, and taken by `locker.accept()`.
 *
 * Its text, which `toString` returns and `JSON.stringify` writes, is one line without spaces, the same in every
 * language. **Whoever has the text can take the lock, once.** Treat it as a secret, as you would a session. Consoles
 * show the name and the token only, and no error repeats the text.
 */
export class Ticket {
  /** @internal */
  static [MADE](self: object): boolean {
    return #text in self;
  }

  readonly #text: string;
  /** The name of the lock. */
  readonly name: string;
  /** The token of the lease that was passed on. The accepting lease gets a greater one. */
  readonly token: number;
  /** The time to live of that lease, in milliseconds. */
  readonly ttl: number;

  /** @internal */
  constructor(text: string) {
    [this.name, this.token, this.ttl] = readTicket(text);
    this.#text = text;
  }

  /** Returns the text, which is a secret. */
  toString(): string {
    if (!Ticket[MADE](this)) {
      throw config("ticket.toString was called without its ticket");
    }
    return this.#text;
  }

  /** Returns the text, which is a secret, for `JSON.stringify`. */
  toJSON(): string {
    return this.toString();
  }

  /**
   * Prints the object on consoles, without its text.
   *
   * @internal
   */
  [INSPECT](...asked: Asked): string {
    const { name, token } = this;
    return printed("Ticket", { toJSON: () => ({ name, token }) }, ...asked);
  }
}

/** Reads a ticket that a program gives as an object or as its text. Throws the error in it. */
export function ticketOf(given: Ticket | string): Ticket {
  const text: unknown = typeof given === "object" ? attempt("a ticket cannot be read", () => String(given)) : given;
  checkText("a ticket", text);
  return new Ticket(text);
}
