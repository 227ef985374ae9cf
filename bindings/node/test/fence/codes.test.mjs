// The meaning of a database's error codes, which is the same as in Rust.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "../support/test.mjs";
import { fence } from "./bundle.mjs";

const vectors = JSON.parse(readFileSync(new URL("../../../../tests/vectors/sql_codes.json", import.meta.url)));

/** Makes errors as the drivers make them. */
const shapes = {
  postgres: ({ code, says }) => Object.assign(new Error(says), { code, severity: "ERROR" }),
  mysql: ({ code, says }) => Object.assign(new Error(says), { errno: Number(code), sqlState: "HY000" }),
  // The upper byte is the extended code.
  sqlite: ({ code, says }) => Object.assign(new Error(says), { errcode: 0x300 + Number(code) }),
};

for (const [database, shape] of Object.entries(shapes)) {
  test(`${database}: a code means what it does in Rust`, () => {
    const own = vectors.filter((vector) => vector.database === database);
    assert.ok(own.length > 10);
    for (const vector of own) {
      assert.equal(fence[database].classify(shape(vector)), vector.means, JSON.stringify(vector));
    }
  });

  test(`${database}: errors that are not the server's have no code`, () => {
    for (const error of [undefined, null, 7, "1146", new Error("no"), { code: "ECONNREFUSED", errno: -111 }]) {
      assert.ok([undefined, "store"].includes(fence[database].classify(error)), String(error));
    }
  });
}
