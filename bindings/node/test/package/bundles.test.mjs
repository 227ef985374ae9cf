// Catches: a bundle with engines that its program does not use; advice on bundling that does not work.
import assert from "node:assert/strict";
import { readFile, readdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { build } from "esbuild";
import { rollup } from "rollup";
import { sizes } from "../../sizes.mjs";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { HELD, THREAD_COMMONJS, THREAD_MODULE, WORKER } from "./programs.mjs";
import { SOURCE, folderOf, installed, put, run } from "./support.mjs";

/** The beginning of each engine in base64: WebAssembly's magic number. */
const ENGINE = /AGFzbQ/g;
const enginesIn = (text) => text.match(ENGINE)?.length ?? 0;

const ERRORS = (entry) => `
import { LeaseholdError } from "${entry}";
console.log(new LeaseholdError("config", "it is one").code);
`;
/** Takes a lock on a server and then, if asked to, one of a quorum. */
const LOCKS = `
import { Locker } from "leasehold";
async function main(url, quorum) {
  const locker = await Locker.connect(url);
  await locker.lock("bundled").using(({ token }) => console.log("held " + (token > 0)));
  await locker.shutdown();
  const members = ["memory://one", "memory://two", "memory://three"];
  if (quorum) await Locker.quorum(members).then((locker) => locker.shutdown());
}
main(...process.argv.slice(2)).catch(({ code, message }) => console.log(code + ": " + message));
`;
const PARTS = ["./leasehold-quorum.js", "./leasehold-memory.js"];
const NODE = { bundle: true, platform: "node", logLevel: "error" };

const PAGE = new URL("../../../../docs/book/src/javascript.md", import.meta.url);

describe("a bundle", () => {
  let folder;
  let server;
  before(async () => {
    ({ folder } = await installed());
    await symlink(join(SOURCE, "node_modules/ioredis"), join(folder, "node_modules/ioredis"));
    await put(folder, { "program.mjs": LOCKS });
    for (const name of ["leasehold", "leasehold/errors"]) await put(folder, { [`${name.replace("/", "-")}.mjs`]: ERRORS(name) });
    server = await startRedis();
  });
  after(() => server?.stop());

  const bundled = (options) => build({ absWorkingDir: folder, ...NODE, ...options });

  for (const entry of ["leasehold", "leasehold/errors"]) {
    test(`a bundle with only the errors of ${entry} has no engine in it`, async () => {
      const input = `${entry.replace("/", "-")}.mjs`;
      await bundled({ entryPoints: [input], outfile: "errors.cjs", minify: true });
      const text = await readFile(join(folder, "errors.cjs"), "utf8");
      assert.equal(enginesIn(text), 0);
      assert.ok(text.length < 4_000, `${text.length} bytes`);
      assert.equal(await run(process.execPath, ["errors.cjs"], folder), "config\n");

      const dist = join(folder, "node_modules/leasehold/dist");
      const file = { leasehold: "index.js", "leasehold/errors": "errors.js" }[entry];
      const resolveId = (id) => (id === entry ? join(dist, file) : undefined);
      const made = await rollup({
        input: join(folder, input),
        external: ["ioredis", "redis"],
        plugins: [{ name: "packages", resolveId }],
        // As in the package's package.json.
        treeshake: { moduleSideEffects: false },
      });
      const { output } = await made.generate({ format: "es" });
      assert.equal(enginesIn(output.map(({ code }) => code).join("")), 0);
    });
  }

  test("a split bundle loads one engine, and the others when they are needed", async () => {
    await bundled({ entryPoints: ["program.mjs"], outdir: "split", splitting: true, format: "esm", external: ["ioredis", "redis"] });
    const files = await readdir(join(folder, "split"));
    const texts = await Promise.all(files.map((file) => readFile(join(folder, "split", file), "utf8")));
    assert.deepEqual(texts.map(enginesIn).filter((count) => count > 0), [1, 1, 1]);
    const entry = texts[files.indexOf("program.js")];
    assert.match(entry, /import\("\.\/leasehold-quorum/);
    assert.doesNotMatch(entry, /from "\.\/leasehold-(quorum|memory)/);
    await put(join(folder, "split"), { "package.json": '{ "type": "module" }' });
    assert.equal(await run(process.execPath, ["split/program.js", server.url, "too"], folder), "held true\n");
  });

  for (const format of ["esm", "cjs"]) {
    test(`a bundle in one file, as ${format}, can be made without the engines that it does not use`, async () => {
      const outfile = format === "esm" ? "one.mjs" : "one.cjs";
      await bundled({ entryPoints: ["program.mjs"], outfile, format, external: ["ioredis", "redis", ...PARTS] });
      assert.equal(enginesIn(await readFile(join(folder, outfile), "utf8")), 1);
      const printed = await run(process.execPath, [outfile, server.url, "too"], folder);
      assert.match(printed, /^held true\nconfig: the quorum engine could not be loaded: .*leasehold-quorum\.js/);
      // The control: with all of them.
      await bundled({ entryPoints: ["program.mjs"], outfile, format, external: ["ioredis", "redis"] });
      assert.equal(enginesIn(await readFile(join(folder, outfile), "utf8")), 3);
    });
  }

  for (const [name, { input, format, splitting = false }] of Object.entries({
    "in one file, as esm,": { input: "thread.mjs", format: "esm" },
    "in one file, as cjs,": { input: "thread.cjs", format: "cjs" },
    "that is split": { input: "thread.mjs", format: "esm", splitting: true },
  })) {
    test(`a bundle ${name} runs its worker thread`, async () => {
      await put(folder, { "thread.mjs": THREAD_MODULE, "thread.cjs": THREAD_COMMONJS });
      const outExtension = { ".js": format === "esm" ? ".mjs" : ".cjs" };
      const options = { entryPoints: [input], outdir: "threads", format, splitting, outExtension };
      await bundled({ ...options, external: ["ioredis", "redis"] });
      const file = `threads/thread${outExtension[".js"]}`;
      assert.match(await run(process.execPath, [file, server.url], folder), HELD);
    });
  }

  test("a bundle without the code of the worker thread, or with the client inside, says what to do", async () => {
    await put(folder, { "thread.cjs": THREAD_COMMONJS });
    const out = { entryPoints: ["thread.cjs"], outfile: "without.cjs" };
    await bundled({ ...out, external: ["ioredis", "redis", "./leasehold-thread.cjs"] });
    const without = await run(process.execPath, ["without.cjs", server.url], folder);
    assert.match(without, /^config: the code of the worker thread could not be loaded: .*leasehold-thread\.cjs[^]*; bundle it with the program\n$/);
    const alone = await folderOf();
    await bundled({ ...out, outfile: join(alone, "inside.cjs") });
    const inside = await run(process.execPath, ["inside.cjs", server.url], alone);
    assert.match(inside, /^config: no client for .* is installed; npm install ioredis/);
  });

  test("that is made as the book says reaches a server", async () => {
    const page = await readFile(PAGE, "utf8");
    const commands = [...page.matchAll(/^esbuild (.*--outfile=(\S+))$/gm)];
    assert.ok(commands.length >= 3, `${commands.length} commands`);
    for (const [command, args, outfile] of commands) {
      await run("esbuild", ["--log-level=error", ...args.split(" ")], folder);
      assert.equal(await run(process.execPath, [outfile, server.url], folder), "held true\n", command);
    }
  });

  test("for a worker that is made as the book says has WebAssembly in files of its own", async () => {
    const [, args] = /^esbuild (worker\.mjs .*)$/m.exec(await readFile(PAGE, "utf8"));
    await put(folder, { "worker.mjs": WORKER });
    await run("esbuild", ["--log-level=error", ...args.split(" ")], folder);
    const files = await readdir(join(folder, "worker"));
    assert.deepEqual(files.sort(), ["leasehold.wasm", "memory.wasm", "quorum.wasm", "worker.js"]);
    assert.equal(enginesIn(await readFile(join(folder, "worker/worker.js"), "utf8")), 0);
  });

  test("a bundle that is made in another way says what to do instead", async () => {
    await bundled({ entryPoints: ["program.mjs"], outfile: "page.cjs", platform: "browser" });
    const browser = await run(process.execPath, ["page.cjs", server.url], folder);
    assert.match(browser, /^config: .*the build for browsers: bundle the program for Node \(esbuild: --platform=node\)/);
    await bundled({ entryPoints: ["program.mjs"], outfile: "client.mjs", format: "esm" });
    const client = await run(process.execPath, ["client.mjs", server.url], folder);
    assert.match(client, /ioredis: Dynamic require of .*; leave it out of the bundle \(esbuild: --external:ioredis\), or bundle .*--format=cjs\)\n$/);
    assert.doesNotMatch(client, /npm install/);
  });
});

test("the book's sizes are those of `npm run sizes`", async () => {
  const page = await readFile(PAGE, "utf8");
  for (const [what, bytes] of await sizes()) {
    const row = page.split("\n").find((line) => line.startsWith(`| ${what} |`));
    const said = Number(/\| (\d+) \|$/.exec(row ?? "")?.[1]);
    const actual = Math.ceil(bytes / 1_000);
    assert.ok(Math.abs(said - actual) <= Math.max(1, actual / 10), `${what}: ${said} is said, it is ${actual}`);
  }
});
