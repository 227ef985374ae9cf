// The JavaScript programs of the book run, each as it stands on its page. One that is marked `no_run` is parsed only.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { documented } from "../support/documented.mjs";
import { startNode, startProgram } from "../support/program.mjs";
import { test } from "../support/test.mjs";

const SRC = fileURLToPath(new URL("../../../../docs/book/src/", import.meta.url));

// coming-from.test.mjs runs the programs of that page, and checks more of them.
const isOwn = (file) => file.endsWith(".md") && file !== "coming-from.md";
const pages = readdirSync(SRC, { recursive: true }).filter(isOwn).sort();
const programs = pages.flatMap((page) => {
  const text = readFileSync(join(SRC, page), "utf8");
  const blocks = [...text.matchAll(/^```(?:js|javascript)\b(\S*)\n([^]*?)^```$/gm)];
  return blocks.map(({ 1: marks, 2: code }, at) => ({ title: `${page}, program ${at + 1}`, runs: !marks.includes("no_run"), code }));
});

const tests = documented();

test("the book has programs", () => {
  assert.ok(programs.length > 20 && programs.filter(({ runs }) => runs).length > 15, `${programs.length}`);
});

for (const [at, { title, runs, code }] of programs.entries()) {
  test(`${title} ${runs ? "runs and ends" : "can be parsed"}`, async () => {
    const file = tests.put(`program-${at}`, code);
    const program = runs ? startNode(file) : startProgram(process.execPath, ["--check", file]);
    assert.equal(await program.end(30_000), 0, program.output());
  });
}
