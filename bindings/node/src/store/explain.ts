import type { Adapter } from "../adapters/adapter.js";
import { failure } from "../adapters/failure.js";
import { holdsSecret } from "../adapters/shared.js";
import { LeaseholdError } from "../common/errors.js";
import { printable } from "../common/printable.js";
import { errorOf, stateless, toldBy } from "../module/wasm.js";

/** The client or server that an error is about. */
type Source = Pick<Adapter, "secrets" | "shown">;

/** Returns the meaning of a client's error in a namespace, with the engine's advice and without secrets. */
export function explained(error: unknown, { secrets, shown }: Source, namespace: string): LeaseholdError {
  const own = ownError(error);
  if (own !== undefined) {
    return own;
  }
  const failed = failure(error);
  const said = "reply" in failed ? failed.reply : failed.message;
  const hidden = holdsSecret(said, secrets);
  if ("reply" in failed) {
    const told = toldBy(stateless().serverError(said, namespace));
    if (hidden && !OWN_WORDS.has(told.advice)) {
      return new LeaseholdError(told.code, `the server refused ${HIDDEN}`);
    }
    return errorOf(told, shown === undefined ? OF_CLIENT : {});
  }
  return new LeaseholdError(failed.code, LEADS[failed.code] + (hidden ? HIDDEN : printable(said)));
}

/** Returns the error of a first attempt. Its message begins with the server, if a URL named that. */
export function named(error: LeaseholdError, { shown }: Pick<Adapter, "shown">): LeaseholdError {
  return shown === undefined ? error : new LeaseholdError(error.code, `${shown}: ${error.message}`);
}

/**
 * Returns a `LeaseholdError` that the program's own client rejected with, stripped of anything that the
 * engine cannot take.
 */
function ownError(error: unknown): LeaseholdError | undefined {
  try {
    if (error instanceof LeaseholdError) {
      const { code, message } = error;
      return typeof code === "string" && typeof message === "string" ? new LeaseholdError(code, message.slice(0, LONGEST)) : undefined;
    }
  } catch {
    // Reading it throws, which no error of ours does.
  }
  return undefined;
}

/** The number of characters that are kept of a message. */
const LONGEST = 4_096;

const HIDDEN = "(its message contains the password and is not shown)";

const LEADS = {
  unavailable: "the store cannot be reached: ",
  overloaded: "too many commands wait for the connection: ",
  timeout: "",
  tls: "TLS failed: ",
  store: "",
} as const;

/** With this advice the engine uses its own words instead of the server's, so they contain no password. */
const OWN_WORDS: ReadonlySet<string | undefined> = new Set(["checkCredentials", "giveCredentials"]);

const CHECK_CLIENT = "check the client's user and password, or its token";

/** The engine's advice is about a URL, which the program's own client need not have. */
const OF_CLIENT = {
  checkCredentials: CHECK_CLIENT,
  giveCredentials: CHECK_CLIENT,
  cluster: "give a client of the cluster",
  database: "the client's database does not exist on this server",
} as const;
