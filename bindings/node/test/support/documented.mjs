// Runs the programs of documentation: in a folder from which their imports are found, on a server of the tests.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import { startRedis } from "./redis.mjs";
import { atExit } from "./wait.mjs";

const cache = fileURLToPath(new URL("../../node_modules/.cache", import.meta.url));
const dist = (_, entry = "/index") => `from "${new URL(`../../dist${entry}.js`, import.meta.url)}"`;

/** Starts a server for the tests of a file, in `server`. `put` writes a program, and returns its path. */
export function documented() {
  const tests = {};
  before(async () => {
    tests.server = await startRedis();
    // In this folder, so that imports are found.
    mkdirSync(cache, { recursive: true });
    tests.folder = mkdtempSync(join(cache, "docs-"));
    atExit(() => rmSync(tests.folder, { recursive: true, force: true }));
  });
  after(() => tests.server.stop());

  /** Writes a program, with the lines that the book hides, changed to use the tests' server. */
  tests.put = (name, code) => {
    const file = join(tests.folder, `${name}.mjs`);
    const whole = code.replace(/^~/gm, "").replaceAll("redis://127.0.0.1:6379", tests.server.url);
    writeFileSync(file, whole.replace(/from "leasehold(\/\w+)?"/g, dist));
    return file;
  };
  return tests;
}
