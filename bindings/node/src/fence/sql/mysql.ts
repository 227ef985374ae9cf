import mark from "../../../../../core/src/fence/sql/mark.sql";
import marked from "../../../../../core/src/fence/sql/marked.sql";
import codes from "../../../../../core/src/fence/sql/mysql/codes.txt";
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

/** As `core/src/fence/sql/mysql.rs` has it, with the same statements. */
export const mysql: Dialect = {
  begin: (isolation) =>
    isolation
      ? [`SET TRANSACTION ISOLATION LEVEL ${isolation.toUpperCase()}`, "START TRANSACTION"]
      : ["START TRANSACTION"],
  *take(resource, token) {
    yield { sql: take, args: [resource, token, token] };
    const seen = yield { sql: highest, args: [resource] };
    // Two rows: the table has no key. None: the name was cut to fit. Not whole: the column may have
    // rounded the token.
    const whole = seen.whole && seen.rows.length === 1;
    return { highest: whole ? seen.rows[0]?.[0] : undefined, transaction: "" };
  },
  mark,
  // The end of a transaction, of whatever kind, takes its savepoints with it.
  isMarked: () => succeeds(marked, (error) => number(error) === NO_SAVEPOINT),
  *mustBeOpen() {
    const answer = yield { sql: "DO 0" };
    // Without autocommit the next statement opens one.
    return answer.inTransaction === true || answer.autocommit === false;
  },
  *shape() {
    // Nobody can change a table that an open transaction has read; otherwise what `shape` reads might be
    // partly from before a change and partly from after it.
    const exists = yield* succeeds(hold, (error) => number(error) === NO_TABLE);
    return exists ? (yield { sql: shape }).rows : [];
  },
  create,
  classify: classifier(codes, number),
};

/** The number of a server's error; those of the operating system are negative. */
function number(error: unknown): number | undefined {
  const { errno, sqlState } = (error ?? {}) as { errno?: unknown; sqlState?: unknown };
  return typeof errno === "number" && errno > 0 && sqlState !== undefined ? errno : undefined;
}
