import type { Tracking } from "./adapter.js";

/** The channel on which a server says what was changed, to a connection that speaks RESP2. */
export const CHANGES = "__redis__:invalidate";

/** What `CLIENT GETREDIR` says where nothing is tracked. */
const OFF = -1;

/**
 * Turns tracking on by `call`, which sends one command. Of a client that is `own` nobody else can have
 * done that.
 */
export function turnOnBy(
  call: (...command: string[]) => Promise<unknown>,
  own: boolean,
): Tracking["turnOn"] {
  let last = OFF;
  return async (id) => {
    const before = last;
    last = id;
    const to = own ? OFF : Number(await call("CLIENT", "GETREDIR"));
    if (to !== OFF && to !== before) {
      throw new Error("the client tracks keys itself");
    }
    // OPTIN, so that nothing else that is read on this connection is tracked.
    await call("CLIENT", "TRACKING", "ON", "REDIRECT", String(id), "OPTIN", "NOLOOP");
  };
}

/** A connection's id, if this user may ask for it. */
export async function idBy(call: (...command: string[]) => Promise<unknown>): Promise<number | undefined> {
  try {
    const id = Number(await call("CLIENT", "ID"));
    return Number.isSafeInteger(id) ? id : undefined;
  } catch {
    return undefined;
  }
}
