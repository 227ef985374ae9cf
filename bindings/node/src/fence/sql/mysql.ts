import mark from "../../../../../core/src/fence/sql/mark.sql";
import marked from "../../../../../core/src/fence/sql/marked.sql";
import codes from "../../../../../core/src/fence/sql/mysql/codes.txt";
import complete from "../../../../../core/src/fence/sql/mysql/complete.sql";
import create from "../../../../../core/src/fence/sql/mysql/create.sql";
import highest from "../../../../../core/src/fence/sql/mysql/highest.sql";
import hold from "../../../../../core/src/fence/sql/mysql/hold.sql";
import shape from "../../../../../core/src/fence/sql/mysql/shape.sql";
import take from "../../../../../core/src/fence/sql/mysql/take.sql";
import { classifier } from "./codes.js";
import type { Dialect } from "./dialect.js";
import { succeeds } from "./steps.js";

const NO_TABLE = 1146;
const NO_SAVEPOINT = 1305;

/** MySQL and MariaDB, with the statements of `core/src/fence/sql/mysql.rs`. */
export const mysql: Dialect = {
  begin: (isolation) =>
    isolation
      ? [`SET TRANSACTION ISOLATION LEVEL ${isolation.toUpperCase()}`, "START TRANSACTION"]
      : ["START TRANSACTION"],
  *take(resource, token) {
    yield { sql: take, args: [resource, token, token] };
    const seen = yield { sql: highest, args: [resource] };
    // Two rows mean that the table has no key. No row means that the name was cut to fit. A column that is
    // not whole may have rounded the token.
    const whole = seen.whole && seen.rows.length === 1;
    return { highest: whole ? seen.rows[0]?.[0] : undefined, transaction: "" };
  },
  *complete(resource, tick) {
    return (yield { sql: complete, args: [tick, resource, tick] }).changed === 1;
  },
  mark,
  // The end of a transaction, of any kind, removes its savepoints.
  isMarked: () => succeeds(marked, (error) => number(error) === NO_SAVEPOINT),
  *mustBeOpen() {
    const answer = yield { sql: "DO 0" };
    // Without autocommit the next statement opens a transaction.
    return answer.inTransaction === true || answer.autocommit === false;
  },
  *shape() {
    // Nobody can change a table that an open transaction has read. Otherwise `shape` might read parts from
    // before a change and parts from after it.
    const exists = yield* succeeds(hold, (error) => number(error) === NO_TABLE);
    return exists ? (yield { sql: shape }).rows : [];
  },
  create,
  classify: classifier(codes, number),
};

/** Returns the number of a server's error. Errors of the operating system have negative numbers. */
function number(error: unknown): number | undefined {
  const { errno, sqlState } = (error ?? {}) as { errno?: unknown; sqlState?: unknown };
  return typeof errno === "number" && errno > 0 && sqlState !== undefined ? errno : undefined;
}
