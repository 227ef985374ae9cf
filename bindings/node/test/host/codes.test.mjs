// The codes of errors and of losses are those of Rust.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { LeaseholdError, LeaseLostError } from "../../dist/index.js";
import { test } from "../support/test.mjs";

const { errors, reasons } = JSON.parse(
  readFileSync(new URL("../../../../tests/vectors/codes.json", import.meta.url)),
);

test("an error's code says whether it is transient, as in Rust", () => {
  for (const { code, transient } of errors) {
    assert.equal(new LeaseholdError(code, "").transient, transient, code);
  }
  // Catches a lookup that finds properties of `Object.prototype`.
  assert.equal(new LeaseholdError("constructor", "").transient, false);
});

test("a reason for a loss has the words of Rust", () => {
  for (const { code, says } of reasons) {
    const { message } = new LeaseLostError("x", 7, code);
    assert.equal(message, `the lease on "x" with token 7 was lost: ${says}`);
  }
});

// The types have these codes and no others.
test("the types have the codes of Rust", () => {
  const types = readFileSync(new URL("../../src/common/errors.ts", import.meta.url), "utf8");
  assert.deepEqual(members(types, "ErrorCode"), errors.map(({ code }) => code));
  assert.deepEqual(members(types, "LossReason"), reasons.map(({ code }) => code));
});

function members(text, type) {
  const [, union] = new RegExp(`^export type ${type} =([^;]*);`, "m").exec(text);
  return [...union.matchAll(/"(\w+)"/g)].map(([, code]) => code);
}
