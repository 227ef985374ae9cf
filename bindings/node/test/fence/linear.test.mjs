// Reading foreign text takes time in proportion to its length, and every resource name is cheap.
import assert from "node:assert/strict";
import { test } from "../support/test.mjs";
import { fence } from "./bundle.mjs";

/** The shorter text first: reading that is not linear fails there, before the longer text takes forever. */
const LENGTHS = [20_000, 1_000_000];

/** Returns the best of three times in milliseconds: other programs only ever make it longer. */
function time(act) {
  const times = [1, 2, 3].map(() => {
    const began = performance.now();
    act();
    return performance.now() - began;
  });
  return Math.min(...times);
}

/** Far more than a few passes over the text take, and far less than one pass for each character. */
function inProportion(text, act, what) {
  const pass = time(() => /[^]$/.test(text.replace(/[^]/g, "x")));
  const took = time(() => act(text));
  assert.ok(took < 100 + 20 * pass, `${what}: ${took} ms, and ${pass} ms for a pass`);
}

/** The beginning of each text, and the part that is repeated. */
const PARTS = {
  letters: ["", "A"],
  "letters and digits": ["", "A1"],
  underscores: ["A", "_"],
  spaces: ["", " "],
  lines: ["A", "\n"],
  "time-outs": ["", "within 1"],
  commands: ["", ", command was: "],
  percents: ["/", "%"],
  "percent encoding": ["/", "%41"],
  colons: ["a", ":"],
  schemes: ["a", "a.+-"],
  quotes: ["", '"'],
};

for (const [name, [first, part]] of Object.entries(PARTS)) {
  // Catches a regular expression that backtracks: 32,000 letters took seconds.
  test(`a long text of ${name} is read in proportion to its length`, async () => {
    for (const length of LENGTHS) {
      const text = first + part.repeat(length / part.length);
      inProportion(text, (message) => fence.failure(new Error(message)), "an error of a client");
      inProportion(text, (url) => fence.writtenPath("PUT", url), "a path");
      inProportion(text, (body) => fence.refusal(409, body), "an answer");
      const said = Object.assign(new Error(text), { name: "ReplyError" });
      const redis = new fence.FencedRedis({ eval: () => Promise.reject(said) }).resource("r", 1);
      const began = performance.now();
      await assert.rejects(redis.set("k", 1), { name: "LeaseholdError" });
      const took = performance.now() - began;
      assert.ok(took < 2_000, `a refusal: ${took} ms`);
    }
  });
}

// Catches a search for a tag for each name: whoever chooses names could make us spend 2.5 ms on each.
test("the key of any name is cheap", () => {
  const names = (part) => Array.from({ length: 2_000 }, (_, index) => `a${part}${index}`);
  const keys = (of) => time(() => of.forEach((name) => fence.fenceKey(name)));
  const plain = keys(names("-"));
  const odd = keys(names("}"));
  assert.ok(odd < 50 + 20 * plain, `${odd} ms, and ${plain} ms for plain names`);
});
