import { config } from "../../common/check.js";
import { LeaseholdError } from "../../common/errors.js";
import { printable } from "../../common/printable.js";
import type { Dialect } from "./dialect.js";
import type { Driver } from "./drivers.js";
import { type Steps, text } from "./steps.js";
import { inTransaction } from "./transaction.js";

/** Creates the fence table. Refuses another table of its name. */
export async function makeTable(driver: Driver): Promise<void> {
  // The second look checks the table that was created, perhaps by another program that was faster.
  if (!(await lookOrCreate(driver)) && !(await lookOrCreate(driver))) {
    throw new LeaseholdError("unavailable", "the table leasehold_fence was dropped right after it was created: try again");
  }
}

/**
 * Resolves to true if there is a fence table; otherwise creates it. Only another transaction can check the
 * new table, because in MySQL `CREATE TABLE` ends this one.
 */
async function lookOrCreate(driver: Driver): Promise<boolean> {
  const { dialect } = driver;
  function* first(): Steps<boolean> {
    const [found] = yield* dialect.shape();
    if (found === undefined) {
      yield { sql: dialect.create };
    } else if (text(found[0]) !== "") {
      throw refused(text(found[0]), dialect);
    }
    return found !== undefined;
  }
  return inTransaction(driver, undefined, { first, work: (_, found) => found });
}

function refused(found: string, { create }: Dialect): LeaseholdError {
  return config(
    `the table leasehold_fence is not a fence table: the database has \`${printable(found)}\`; find out who made it, ` +
      "because its triggers and defaults run with the rights of its users, drop it while nobody holds a lease, and " +
      `call createFenceTable again, which runs: ${create.replace("\n", " ")}`,
  );
}
