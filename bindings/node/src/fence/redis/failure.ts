import refusals from "../../../../../core/engine/src/protocol/refusals.txt";
import { failure } from "../../adapters/index.js";
import { holdsSecret } from "../../adapters/shared.js";
import { type ErrorCode, LeaseholdError } from "../../common/errors.js";
import { printable } from "../../common/printable.js";
import { rowsOf } from "../rows.js";
import { quoted, StaleTokenError } from "../stale.js";

/** A guarded write, as its errors describe it. */
export interface Attempt {
  readonly resource: string;
  readonly fence: string;
  readonly token: number;
  /** Passwords that messages must not show. */
  readonly secrets: readonly string[];
}

/** Returns the meaning of an error of a guarded write. */
export function failed(attempt: Attempt, error: unknown): LeaseholdError {
  if (error instanceof LeaseholdError) {
    return error;
  }
  const { resource, fence, token, secrets } = attempt;
  const judged = failure(error);
  const said = "reply" in judged ? judged.reply : judged.message;
  const hidden = holdsSecret(said, secrets);
  const make = (code: ErrorCode, what: string) =>
    new LeaseholdError(
      code,
      `the guarded write to ${quoted(resource)} failed: ${what}`,
      hidden ? undefined : { cause: bare(error, said) },
    );
  const [word, second] = said.split(/\s+/, 2);
  if (word === "STALETOKEN" && /^\d+$/.test(second ?? "")) {
    return new StaleTokenError(resource, token, Number(second));
  }
  if (word === "NOTAFENCE") {
    const where = `its fence key ${quoted(fence)}`;
    return make("wrongType", `${where} does not hold a token: something other than a guard wrote to it`);
  }
  if (word === "CROSSSLOT") {
    const where = `its keys and its fence key ${quoted(fence)}`;
    return make("config", `${where} are on different cluster slots; give all the same hash tag`);
  }
  const shown = hidden ? "(the message contains the password and is not shown)" : printable(said);
  if ("reply" in judged) {
    return make(meaning(said), `the server answered: ${shown}`);
  }
  const unknown = judged.code === "timeout" || judged.code === "unavailable";
  return make(judged.code, unknown ? `no answer, so it is unknown whether the write was done: ${shown}` : shown);
}

/**
 * Returns a copy of an error that may be shown. Clients put the command on their errors, as a property or at
 * the end of the message. The command contains the script and the values to write.
 */
function bare(error: unknown, said: string): Error {
  const copy = new Error(said);
  if (error instanceof Error) {
    const { name, message, stack = "" } = error;
    const { code } = error as { code?: unknown };
    const behind = stack.indexOf(message) + message.length;
    const frames = stack.includes(message) ? stack.slice(behind) : "";
    Object.defineProperty(copy, "name", { value: name });
    Object.defineProperty(copy, "stack", { value: `${name}: ${said}${frames}` });
    Object.assign(copy, typeof code === "string" && { code });
  }
  return copy;
}

function meaning(said: string): ErrorCode {
  if (said.startsWith("ERR Error compiling script")) {
    return "config";
  }
  const text = printable(said);
  const [word = ""] = text.split(" ", 1);
  const row = rowsOf(refusals).find(([place, wanted = ""]) =>
    place === "word" ? wanted.split(" ").includes(word) : text.includes(wanted),
  );
  return (row?.[2] as ErrorCode | undefined) ?? "store";
}
