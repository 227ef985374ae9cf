import codes from "../../../../../core/src/fence/sql/mysql/codes.txt";
import create from "../../../../../core/src/fence/sql/mysql/create.sql";
import highest from "../../../../../core/src/fence/sql/mysql/highest.sql";
import hold from "../../../../../core/src/fence/sql/mysql/hold.sql";
import inspect from "../../../../../core/src/fence/sql/mysql/inspect.sql";
import mark from "../../../../../core/src/fence/sql/mysql/mark.sql";
import marked from "../../../../../core/src/fence/sql/mysql/marked.sql";
import migrate from "../../../../../core/src/fence/sql/mysql/migrate.sql";
import take from "../../../../../core/src/fence/sql/mysql/take.sql";
import tooLong from "../../../../../core/src/fence/sql/mysql/too_long.sql";
import { messageOf } from "../../common/printable.js";
import { meaningOf } from "./codes.js";
import { alien, type Class, type Dialect, MISSING, shapeOf } from "./dialect.js";
import { isTrue } from "./steps.js";

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
  // Every end of the transaction takes its savepoints with it, whatever begins afterwards.
  *isMarked() {
    try {
      yield { sql: marked };
      return true;
    } catch (error) {
      if (number(error) === NO_SAVEPOINT) {
        return false;
      }
      throw error;
    }
  },
  *mustBeOpen() {
    const answer = yield { sql: "DO 0" };
    // Without autocommit the next statement opens one.
    return answer.inTransaction === true || answer.autocommit === false;
  },
  *shape() {
    // Nobody can change a table that an open transaction has read; else what `inspect` reads might be
    // partly from before a change and partly from after it.
    try {
      yield { sql: hold };
    } catch (error) {
      if (number(error) === NO_TABLE) {
        return MISSING;
      }
      throw error;
    }
    const [row] = (yield { sql: inspect }).rows;
    const shape = shapeOf(row, migrate);
    // In the migration a server that is not in strict mode would cut them.
    if (shape.is === "older" && isTrue((yield { sql: tooLong }).rows[0]?.[0])) {
      return alien("it has resources of more than 512 bytes");
    }
    return shape;
  },
  create,
  classify,
};

/** The number of a server's error; those of the operating system are negative. */
function number(error: unknown): number | undefined {
  const { errno, sqlState } = (error ?? {}) as { errno?: unknown; sqlState?: unknown };
  return typeof errno === "number" && errno > 0 && sqlState !== undefined ? errno : undefined;
}

function classify(error: unknown): Class | undefined {
  const errno = number(error);
  return errno === undefined ? undefined : meaningOf(codes, String(errno), messageOf(error));
}
