// The JavaScript programs of the book run, each as it stands on its page. One that is marked `no_run` is parsed only.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import { startNode, startProgram } from "../support/program.mjs";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { atExit } from "../support/wait.mjs";

const SRC = fileURLToPath(new URL("../../../../docs/book/src/", import.meta.url));
const cache = fileURLToPath(new URL("../../node_modules/.cache", import.meta.url));

const pages = readdirSync(SRC, { recursive: true }).filter((file) => file.endsWith(".md")).sort();
const programs = pages.flatMap((page) => {
  const text = readFileSync(join(SRC, page), "utf8");
  const blocks = [...text.matchAll(/^```(?:js|javascript)(\S*)\n([^]*?)^```$/gm)];
  return blocks.map(({ 1: marks, 2: code }, at) => ({ title: `${page}, program ${at + 1}`, runs: !marks.includes("no_run"), code }));
});

let server;
let folder;
before(async () => {
  server = await startRedis();
  // There, so that what is imported is found.
  mkdirSync(cache, { recursive: true });
  folder = mkdtempSync(join(cache, "book-"));
  atExit(() => rmSync(folder, { recursive: true, force: true }));
});
after(() => server.stop());

/** Writes a program, with the lines that the book hides, for the server of the tests. */
function put(name, code) {
  const file = join(folder, `${name}.mjs`);
  const dist = (_, entry = "/index") => `from "${new URL(`../../dist${entry}.js`, import.meta.url)}"`;
  const whole = code.replace(/^~/gm, "").replaceAll("redis://127.0.0.1:6379", server.url);
  writeFileSync(file, whole.replace(/from "leasehold(\/\w+)?"/g, dist));
  return file;
}

test("the book has programs", () => {
  assert.ok(programs.length > 20 && programs.filter(({ runs }) => runs).length > 15, `${programs.length}`);
});

for (const [at, { title, runs, code }] of programs.entries()) {
  test(`${title} ${runs ? "runs and ends" : "can be parsed"}`, async () => {
    const file = put(`program-${at}`, code);
    const program = runs ? startNode(file) : startProgram(process.execPath, ["--check", file]);
    assert.equal(await program.end(30_000), 0, program.output());
  });
}
