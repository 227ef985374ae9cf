// The reply of a server to a scenario's own command.
import assert from "node:assert/strict";

/** Checks that the reply is the expected one; if none is given, that it is not an error. */
export function expectReply(kept, is, expected) {
  if (expected === undefined) {
    assert.ok(!(is instanceof Error), `the server refused: ${is}`);
  } else if (typeof expected === "string") {
    assert.equal(typeof is, "string", `${is} is no text`);
    kept.match(is, expected);
  } else if (Array.isArray(expected)) {
    assert.ok(Array.isArray(is), `${is} is no list`);
    assert.equal(is.length, expected.length, `the reply is ${JSON.stringify(is)}`);
    is.forEach((item, at) => expectReply(kept, item, expected[at]));
  } else if (expected?.range !== undefined) {
    const [least, most] = expected.range;
    assert.ok(least <= Number(is) && Number(is) <= most, `${is} is not within ${least} to ${most}`);
  } else if (expected?.error !== undefined) {
    assert.ok(is instanceof Error && is.message.includes(expected.error), `${is} does not say ${expected.error}`);
  } else {
    assert.strictEqual(is, expected);
  }
}
