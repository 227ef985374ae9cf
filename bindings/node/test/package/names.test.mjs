// The names of the package's classes and errors in consoles and logs: the bundler renames classes.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { before, describe } from "node:test";
import { test } from "../support/test.mjs";
import { installed, put, run } from "./support.mjs";

/** Prints each exported class with a wrong name, and the names of the errors that it throws. */
const PROGRAM = `
async function main(entries) {
  const classes = Object.entries(Object.assign({}, ...entries)).filter(([, value]) => /^class\\b/.test(String(value)));
  const wrong = classes.filter(([name, value]) => value.name !== name || value.prototype.constructor.name !== name);
  const [{ Locker }, , { Gate }] = entries;
  const locker = Locker.inMemory();
  const lease = await locker.lock("x").acquire();
  const job = locker.job("j");
  const { turn } = await job.claim(1);
  const errors = [() => Locker.inMemory({ patience: -1 }), () => Locker.connect("x:"), () => locker.lock("")];
  await locker.forceRelease("x");
  errors.push(() => Promise.reject(lease.signal.reason), () => lease.renew());
  const gate = new Gate();
  gate.check("r", 2);
  errors.push(() => gate.check("r", 1));
  const thrown = [];
  for (const call of errors) {
    await Promise.resolve().then(call).catch((error) => thrown.push([error.constructor.name, error.name]));
  }
  const made = [locker, locker.lock("y"), lease, job, turn, job.turns(), gate].map((object) => object.constructor.name);
  await locker.shutdown();
  console.log(JSON.stringify({ classes: classes.map(([name]) => name), wrong: wrong.map(([name]) => name), made, thrown }));
}
`;
const IMPORT = `${PROGRAM}
main(await Promise.all(["leasehold", "leasehold/slim", "leasehold/fence"].map((entry) => import(entry))));
`;
const REQUIRE = `${PROGRAM}
main(["leasehold", "leasehold/slim", "leasehold/fence"].map((entry) => require(entry)));
`;

describe("classes and errors have their names", () => {
  let folder;
  before(async () => {
    ({ folder } = await installed());
    await put(folder, { "names.mjs": IMPORT, "names.cjs": REQUIRE });
  });

  for (const file of ["names.mjs", "names.cjs"]) {
    test(file, async () => {
      const { classes, wrong, made, thrown } = JSON.parse(await run(process.execPath, [file], folder));
      assert.deepEqual(wrong, []);
      // Catches a search that finds less than there is.
      for (const name of ["Locker", "LeaseholdError", "LeaseLostError", "Gate", "StaleTokenError"]) {
        assert.ok(classes.includes(name), `${name} in ${classes}`);
      }
      assert.deepEqual(made, ["Locker", "Lock", "Lease", "Job", "Turn", "Turns", "Gate"]);
      const names = ["LeaseholdError", "LeaseholdError", "LeaseholdError", "LeaseLostError", "LeaseholdError", "StaleTokenError"];
      assert.deepEqual(thrown, names.map((name) => [name, name]));
    });
  }

  test("also in the files for other platforms", async () => {
    const dist = join(folder, "node_modules/leasehold/dist");
    for (const file of (await readdir(dist)).filter((name) => /\.c?js$/.test(name))) {
      assert.doesNotMatch(await readFile(join(dist, file), "utf8"), /\bclass _\w/, file);
    }
  });
});
