// Catches: an entry, condition or file that is missing in the tarball; glue or a blob that a runtime does not
// take; something that keeps the process alive at its end.
import assert from "node:assert/strict";
import { symlink } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { COMMONJS, HELD, JEST, MODULE, SLIM, THREAD_COMMONJS, THREAD_MODULE, WORKER } from "./programs.mjs";
import { folderOf, installed, put, run, SOURCE } from "./support.mjs";

const CONFIG = `
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (services = [(name = "main", worker = (
  compatibilityDate = "2026-01-01",
  modules = [
    (name = "worker", esModule = embed "worker.js"),
    (name = "leasehold.wasm", wasm = embed "leasehold.wasm"),
    (name = "memory.wasm", wasm = embed "memory.wasm"),
    (name = "quorum.wasm", wasm = embed "quorum.wasm"),
  ],
))]);
`;

describe("the packed package takes a lock", () => {
  let folder;
  before(async () => {
    ({ folder } = await installed());
    await put(folder, { "program.mjs": MODULE, "program.cjs": COMMONJS, "slim.mjs": SLIM, "worker.mjs": WORKER });
  });

  const RUNTIMES = [
    ["Node, import", process.execPath, ["program.mjs"]],
    ["Node, require", process.execPath, ["program.cjs"]],
    ["Node, with a module of the program's own", process.execPath, ["slim.mjs"]],
    // From the npm package `node`, whose program comes before the Node that runs this.
    ["a newer Node, import", "node", ["program.mjs"]],
    ["a newer Node, require", "node", ["program.cjs"]],
    // Without any permission.
    ["Deno", "deno", ["run", "--quiet", "--no-prompt", "--no-remote", "program.mjs"]],
    ["Bun, import", "bun", ["run", "--no-install", "program.mjs"]],
    ["Bun, require", "bun", ["run", "--no-install", "program.cjs"]],
  ];
  for (const [name, program, args] of RUNTIMES) {
    test(name, async () => assert.match(await run(program, args, folder), HELD));
  }

  // Catches: no file for `require` under the condition `browser`; a global that jsdom lacks, such as
  // TextEncoder.
  test("Jest with jsdom", async () => {
    await put(folder, { "jsdom.test.js": JEST });
    const environment = fileURLToPath(import.meta.resolve("jest-environment-jsdom"));
    const options = ["--ci", "--watchman=false", "--cacheDirectory=.jest", "--rootDir=.", `--env=${environment}`];
    await run("jest", options, folder);
  });

  test("workerd", async () => {
    const out = await worker(folder, ["workerd", "worker", "browser"]);
    assert.match(await run("workerd", ["test", "config.capnp"], out), HELD);
  });

  // The control: workerd refuses the file that all other runtimes take. Otherwise the condition `workerd`
  // would prove nothing.
  test("workerd, without its condition, refuses to compile", async () => {
    const out = await worker(folder, ["worker", "browser"]);
    await assert.rejects(run("workerd", ["test", "config.capnp"], out), /code generation disallowed/i);
  });
});

describe("the packed package keeps a lock in a worker thread while the program blocks", () => {
  let folder;
  let server;
  before(async () => {
    ({ folder } = await installed());
    await symlink(join(SOURCE, "node_modules/ioredis"), join(folder, "node_modules/ioredis"));
    await put(folder, { "thread.mjs": THREAD_MODULE, "thread.cjs": THREAD_COMMONJS });
    server = await startRedis();
  });
  after(() => server?.stop());

  const RUNTIMES = [
    ["Node, import", process.execPath, ["thread.mjs"]],
    ["Node, require", process.execPath, ["thread.cjs"]],
    ["Node, by a text", process.execPath, ["--input-type=module", "--eval", THREAD_MODULE, "--"]],
    ["a newer Node, import", "node", ["thread.mjs"]],
    ["a newer Node, require", "node", ["thread.cjs"]],
    ["Deno", "deno", ["run", "--quiet", "--no-prompt", "--no-remote", "--allow-all", "thread.mjs"]],
    ["Bun, import", "bun", ["run", "--no-install", "thread.mjs"]],
    ["Bun, require", "bun", ["run", "--no-install", "thread.cjs"]],
  ];
  for (const [name, program, args] of RUNTIMES) {
    test(name, async () => assert.match(await run(program, [...args, server.url], folder), HELD));
  }

  test("in a browser's build it says that it cannot", async () => {
    const options = { absWorkingDir: folder, entryPoints: ["thread.cjs"], outfile: join(folder, "page.cjs"), bundle: true, logLevel: "error" };
    await build({ ...options, platform: "browser" });
    const printed = await run(process.execPath, ["page.cjs", server.url], folder);
    assert.match(printed, /^config: thread needs the worker threads of Node, Deno or Bun, .* leave `thread` out\n$/);
  });
});

/** Bundles the worker as its tools do: WebAssembly stays in a separate file. */
async function worker(folder, conditions) {
  const out = await folderOf({ "config.capnp": CONFIG });
  await build({
    absWorkingDir: folder,
    entryPoints: { worker: "worker.mjs" },
    outdir: out,
    bundle: true,
    format: "esm",
    conditions,
    loader: { ".wasm": "copy" },
    assetNames: "[name]",
    logLevel: "error",
  });
  // The control's worker imports none.
  for (const wasm of ["leasehold.wasm", "memory.wasm", "quorum.wasm"]) {
    await run("cp", [`${folder}/node_modules/leasehold/dist/${wasm}`, `${out}/${wasm}`], out);
  }
  return out;
}
