// The scenarios of tests/vectors, which every host of the engine must pass.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe } from "node:test";
import { test } from "../support/test.mjs";
import { read, readJson, scenarios, STEPS, VECTORS } from "./format.mjs";
import { STORES } from "./stores.mjs";
import { run } from "./world.mjs";

const all = scenarios();

for (const store of STORES) {
  // More at once would disturb each other.
  describe(`scenarios on ${store.name}`, { concurrency: 4 }, () => {
    for (const [name, scenario] of all) {
      if (scenario.stores.includes(store.kind)) {
        test(name, () => run(scenario, store));
      }
    }
  });
}

test("there are scenarios", () => assert.ok(all.length > 0));

// The negative control: each kind of expectation can fail, and fails at the wrong step.
describe("wrong scenarios fail where they are wrong", { concurrency: 4 }, () => {
  for (const { name, fails, ...wrong } of readJson("wrong_scenarios.json")) {
    if (fails === 0) {
      test(name, () => assert.throws(() => read(wrong), assert.AssertionError));
      continue;
    }
    const scenario = read(wrong);
    for (const store of STORES.filter(({ kind }) => scenario.stores.includes(kind))) {
      test(`${name}, on ${store.name}`, async () => {
        const failed = await run(scenario, store).catch((error) => error);
        assert.equal(failed?.step, fails, `it failed with: ${failed?.message}`);
      });
    }
  }
});

test("the steps are those of the description", () => {
  // Catches a step that one host knows and another does not: the description lists all of them.
  const [, steps] = readFileSync(new URL("README.md", VECTORS), "utf8").split("\n## Steps\n");
  const rows = steps.split("\n## ")[0].matchAll(/^\| `(\w+)`/gm);
  assert.deepEqual([...rows].map(([, step]) => step).sort(), Object.keys(STEPS).sort());
});
