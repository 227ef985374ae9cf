import codes from "../../../../../core/src/fence/sql/postgres/codes.txt";
import complete from "../../../../../core/src/fence/sql/postgres/complete.sql";
import create from "../../../../../core/src/fence/sql/postgres/create.sql";
import highest from "../../../../../core/src/fence/sql/postgres/highest.sql";
import shape from "../../../../../core/src/fence/sql/postgres/shape.sql";
import lock from "../../../../../core/src/fence/sql/postgres/lock.sql";
import marked from "../../../../../core/src/fence/sql/postgres/marked.sql";
import take from "../../../../../core/src/fence/sql/postgres/take.sql";
import { classifier } from "./codes.js";
import type { Dialect } from "./dialect.js";
import { succeeds, text } from "./steps.js";

/** Postgres, with the statements of `core/src/fence/sql/postgres.rs`. */
export const postgres: Dialect = {
  begin: (isolation) => [isolation ? `BEGIN ISOLATION LEVEL ${isolation.toUpperCase()}` : "BEGIN"],
  *take(resource, token) {
    const taken = yield { sql: take, args: [resource, token] };
    if (taken.rows[0]) {
      // A column of another type may have rounded the token.
      const [highest, transaction] = taken.rows[0];
      return { highest: taken.whole ? highest : undefined, transaction: text(transaction) };
    }
    // The row is locked, even though nothing was written to it.
    const seen = yield { sql: highest, args: [resource] };
    return { highest: seen.whole ? seen.rows[0]?.[0] : undefined, transaction: "" };
  },
  *complete(resource, tick) {
    return (yield { sql: complete, args: [tick, resource] }).rows.length === 1;
  },
  // The fence's row was written, so the transaction has a number, which is its name.
  *isMarked(name) {
    return text((yield { sql: marked }).rows[0]?.[0]) === name;
  },
  mustBeOpen: () =>
    succeeds("SAVEPOINT leasehold_fence; RELEASE SAVEPOINT leasehold_fence", (error) => sqlState(error) === "25P01"),
  *shape() {
    // The lock keeps two programs from creating the table at the same time.
    yield { sql: lock };
    return (yield { sql: shape }).rows;
  },
  create,
  classify: classifier(codes, sqlState),
};

/** Returns the code of a server's error. In other errors `code` means something else. */
function sqlState(error: unknown): string | undefined {
  const { code, severity } = (error ?? {}) as { code?: unknown; severity?: unknown };
  return typeof code === "string" && typeof severity === "string" ? code : undefined;
}
