import { tableChanges } from "../../../../../core/src/limits.jsonc";
import { LeaseholdError } from "../../common/errors.js";
import type { Shape } from "./dialect.js";
import type { Driver } from "./drivers.js";
import type { Steps } from "./steps.js";
import { inSyncTransaction, inTransaction } from "./transaction.js";

/** Looks at the fence table, and changes it until it is right. */
export async function makeTable(driver: Driver): Promise<void> {
  for (let changes = 0; !(await isRight(driver)); changes += 1) {
    // Somebody else may make another table of this name each time.
    if (changes === tableChanges) {
      throw notOurs("it does not take the right shape");
    }
  }
}

/**
 * Whether the table is right; if it is not, it is changed. Only another transaction can see what it has
 * become, because in MySQL a change of a table ends this one.
 */
async function isRight(driver: Driver): Promise<boolean> {
  const { dialect } = driver;
  function* look(): Steps<boolean> {
    if (dialect.lockShape !== undefined) {
      yield { sql: dialect.lockShape };
    }
    const sql = change(yield* dialect.shape(), dialect.create);
    if (sql !== undefined) {
      yield { sql };
    }
    return sql === undefined;
  }
  const steps = { first: look, work: (_: object, right: boolean) => right };
  return driver.sync ? inSyncTransaction(driver, steps) : inTransaction(driver, undefined, steps);
}

function change(shape: Shape, create: string): string | undefined {
  switch (shape.is) {
    case "current":
      return undefined;
    case "missing":
      return create;
    case "older":
      return shape.migrate;
    case "alien":
      throw notOurs(shape.why);
  }
}

function notOurs(why: string): LeaseholdError {
  return new LeaseholdError("config", `the table leasehold_fence is not a fence table: ${why}`);
}
