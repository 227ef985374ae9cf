import type { Adapter } from "../adapters/adapter.js";
import { failure } from "../adapters/failure.js";
import { holdsSecret } from "../adapters/shared.js";
import { LeaseholdError } from "../common/errors.js";
import { printable } from "../common/printable.js";
import { parsed, stateless } from "../module/wasm.js";

/** Of whom the error tells. */
type Source = Pick<Adapter, "secrets" | "shown">;

/** What a client's error means, with the engine's advice, and without what must not be shown. */
export function explained(error: unknown, { secrets, shown }: Source): LeaseholdError {
  const own = ownError(error);
  if (own !== undefined) {
    return own;
  }
  const failed = failure(error);
  const said = "reply" in failed ? failed.reply : failed.message;
  const hidden = holdsSecret(said, secrets);
  if ("reply" in failed) {
    const { code, message } = parsed(stateless().serverError(said));
    const plain = hidden && !REFUSED_CREDENTIALS.test(said) ? `the server refused ${HIDDEN}` : message;
    return new LeaseholdError(code, shown === undefined ? ofClient(plain) : plain);
  }
  return new LeaseholdError(failed.code, LEADS[failed.code] + (hidden ? HIDDEN : printable(said)));
}

/** The same of a first attempt: it begins with the server, if a URL named that. */
export function named(error: LeaseholdError, { shown }: Pick<Adapter, "shown">): LeaseholdError {
  return shown === undefined ? error : new LeaseholdError(error.code, `${shown}: ${error.message}`);
}

/** A client of the program may reject with one, too, and with something in it that the engine cannot take. */
function ownError(error: unknown): LeaseholdError | undefined {
  try {
    if (error instanceof LeaseholdError) {
      const { code, message } = error;
      return typeof code === "string" && typeof message === "string" ? new LeaseholdError(code, message) : undefined;
    }
  } catch {
    // It throws as it is looked at: no error of ours does.
  }
  return undefined;
}

const HIDDEN = "(its message has the password in it and is not shown)";

/** The engine tells of these in words that are not the server's, so that no password is in them. */
const REFUSED_CREDENTIALS = /^(WRONGPASS|NOAUTH) /;

const LEADS = {
  unavailable: "the store cannot be reached: ",
  overloaded: "too many commands wait for the connection: ",
  timeout: "",
  store: "",
} as const;

/** Such advice is of a URL; the client of a program need not have one. */
function ofClient(message: string): string {
  return message
    .replace(/; (give|check) the user and password in the URL$/, "; check the client's user and password, or its token")
    .replace(/; the database in the URL /, "; the client's database ");
}
