// Runs the tests: `node test/run.mjs [package] [options of node --test]`. With `package` it runs only the
// tests of the packed package, in every runtime. It lists the files itself, because Node 20 has no patterns.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));

const [first, ...others] = process.argv.slice(2);
const packaging = first === "package";
const options = packaging || first === undefined ? others : [first, ...others];

const files = readdirSync("test", { recursive: true })
  .map((file) => file.replaceAll("\\", "/"))
  .filter((file) => file.endsWith(".test.mjs") && !file.includes("node_modules/"))
  .filter((file) => file.startsWith("package/") === packaging)
  .map((file) => `test/${file}`)
  .sort();

if (files.length === 0) fail("no tests found");
if (!existsSync("dist/index.js")) fail("dist/ is missing; make it with: cargo xtask package");

// The tests use servers and clocks: with many more files at once they disturb each other, and with fewer the
// processors idle. The time limit is for a whole file; each test has its own.
const bounds = ["--test-concurrency=4", "--test-timeout=900000"];
const args = ["--test", "--test-reporter=spec", ...bounds, ...options, ...files];
const { status, error } = spawnSync(process.execPath, args, { stdio: "inherit" });
if (error) fail(error.message);
process.exit(status ?? 1);

function fail(why) {
  console.error(`error: ${why}`);
  process.exit(1);
}
