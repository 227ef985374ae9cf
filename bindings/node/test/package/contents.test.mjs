// What is in the tarball, and what its files ask of a platform.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";
import { before, describe } from "node:test";
import { build, transform } from "esbuild";
import { test } from "../support/test.mjs";
import { installed } from "./support.mjs";

/** Two thirds are the two copies of the blob as text, for `import` and for `require`. */
const TARBALL_LIMIT = 700_000;
const OPTIONAL = ["ioredis", "redis"];

describe("the tarball", () => {
  let root;
  let account;
  let manifest;
  before(async () => {
    const got = await installed();
    account = got.account;
    root = join(got.folder, "node_modules/leasehold");
    manifest = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  });

  const files = async (end) => (await readdir(join(root, "dist"))).filter((file) => file.endsWith(end));

  test("needs no other package", () => {
    assert.equal(manifest.dependencies, undefined);
    assert.equal(manifest.optionalDependencies, undefined);
    assert.deepEqual(Object.keys(manifest.peerDependencies).sort(), OPTIONAL);
    for (const name of OPTIONAL) assert.equal(manifest.peerDependenciesMeta[name].optional, true, name);
    // A script of these would run on the machine of whoever installs it.
    for (const name of ["preinstall", "install", "postinstall"]) assert.equal(manifest.scripts?.[name], undefined);
  });

  test("has every file that it exports, its licences and its README, and no sources", async () => {
    const has = new Set(account.files.map((file) => file.path));
    const exported = JSON.stringify(manifest.exports).match(/\.\/[^"]*\.(json|cjs|js|cts|ts|wasm)/g);
    const missing = [...exported, "LICENSE-MIT", "LICENSE-APACHE", "README.md"]
      .map((path) => path.replace("./", ""))
      .filter((path) => !has.has(path) && path !== "leasehold.wasm");
    assert.deepEqual(missing, []);
    const others = [...has].filter((path) => !/^(dist\/|LICENSE-|README\.md$|package\.json$)/.test(path));
    assert.deepEqual(others, []);
    assert.ok(account.size < TARBALL_LIMIT, `${account.size} bytes`);
  });

  // Catches: a client or a module of Node that got into what pages and workers load.
  test("imports nothing but itself and, when asked for, a client", async () => {
    for (const file of await files(".js")) {
      const { metafile } = await build({
        entryPoints: [join(root, "dist", file)],
        bundle: true,
        format: "esm",
        platform: "neutral",
        write: false,
        metafile: true,
        external: ["*"],
        logLevel: "error",
      });
      const imports = Object.values(metafile.inputs).flatMap((input) => input.imports);
      const outside = imports.filter(({ path }) => !path.startsWith("./") && !path.includes("/dist/"));
      const eager = outside.filter(({ kind }) => kind !== "dynamic-import");
      assert.deepEqual(eager, [], file);
      assert.deepEqual(outside.filter(({ path }) => !OPTIONAL.includes(path)), [], file);
    }
  });

  test("waits for nothing and looks for no file while it loads", async () => {
    for (const file of await files(".js")) {
      const text = await readFile(join(root, "dist", file), "utf8");
      // CommonJS cannot wait while it loads, and esbuild says so.
      await transform(text, { format: "cjs", logLevel: "silent" });
      assert.doesNotMatch(text, /import\.meta|new URL\([^)]*import|\b__dirname\b|readFileSync/, file);
    }
    // Control: that esbuild does say so.
    await assert.rejects(transform("await 0; export {}", { format: "cjs", logLevel: "silent" }), /await/);
  });
});
