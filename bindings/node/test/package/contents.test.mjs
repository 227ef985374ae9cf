// The content of the tarball, and what its files need from a platform.
import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { homedir } from "node:os";
import { join, posix } from "node:path";
import { before, describe } from "node:test";
import { build, transform } from "esbuild";
import { test } from "../support/test.mjs";
import { installed, run, SOURCE } from "./support.mjs";

/**
 * Four tenths are the copies of the three blobs in base64, for `import` and for `require`. A quarter of all
 * is for quorums. The files that `require` gets in a browser, or in Jest's jsdom, are a fourteenth. A
 * twentieth is the code of worker threads, also for `import` and for `require`.
 */
const TARBALL_LIMIT = 2_640_000;
const OPTIONAL = ["ioredis", "redis"];
/** The package that reads cron texts. It has no dependency of its own. */
const NEEDED = ["croner"];
/** Prints the stack trace of a refusal. */
const FAILS = "require('leasehold').Locker.connect(1).catch(({ stack }) => console.log(stack))";

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

  test("needs no other package, except for cron texts", () => {
    assert.deepEqual(Object.keys(manifest.dependencies), NEEDED);
    assert.equal(manifest.optionalDependencies, undefined);
    assert.deepEqual(Object.keys(manifest.peerDependencies).sort(), OPTIONAL);
    for (const name of OPTIONAL) assert.equal(manifest.peerDependenciesMeta[name].optional, true, name);
    // Such a script would run on the machine of whoever installs the package.
    for (const name of ["preinstall", "install", "postinstall"]) assert.equal(manifest.scripts?.[name], undefined);
  });

  test("has every file that it exports, its licenses, its README, and the sources of its maps", async () => {
    const has = new Set(account.files.map((file) => file.path));
    const exported = JSON.stringify([manifest.exports, manifest.typesVersions]).match(/\.\/[^"]*\.(json|cjs|js|cts|ts|wasm)/g);
    const missing = [...exported, "LICENSE-MIT", "LICENSE-APACHE", "README.md"]
      .map((path) => path.replace("./", ""))
      .filter((path) => !has.has(path) && !["leasehold.wasm", "memory.wasm", "quorum.wasm"].includes(path));
    assert.deepEqual(missing, []);
    const others = [...has].filter((path) => !/^(dist\/|src\/|LICENSE-|README\.md$|package\.json$)/.test(path));
    assert.deepEqual(others, []);
    assert.ok(account.size < TARBALL_LIMIT, `${account.size} bytes`);
  });

  test("has a map of each script, whose sources are there", async () => {
    // Catches: a stack trace that leads nowhere; a map that is wrong after the renaming of classes.
    const has = new Set(account.files.map((file) => file.path));
    for (const file of [...(await files(".js")), ...(await files(".cjs"))]) {
      const text = await readFile(join(root, "dist", file), "utf8");
      assert.match(text, new RegExp(`\\n//# sourceMappingURL=${file}\\.map\\n?$`), file);
      const { sources } = JSON.parse(await readFile(join(root, "dist", `${file}.map`), "utf8"));
      // Inlined texts, which no line of the script comes from.
      const code = sources.filter((source) => !/\.(lua|sql|txt|jsonc|wasm)$/.test(source));
      assert.deepEqual(code.filter((source) => !has.has(posix.join("dist", source))), [], file);
    }
    const error = await run(process.execPath, ["--enable-source-maps", "-e", FAILS], root);
    assert.match(error, /at \S*checkText .*src.common.check\.ts:\d+:\d+\)\n +at .*connect .*src.api.locker\.ts:/);
  });

  test("reveals nothing of the machine that made it", async () => {
    const places = [join(SOURCE, "../.."), homedir(), process.env.CARGO_HOME].filter((place) => place?.length > 1);
    for (const { path } of account.files) {
      const text = await readFile(join(root, path), "latin1");
      assert.deepEqual(places.filter((place) => text.includes(place)), [], path);
    }
  });

  test("says of the project what Cargo.toml says", async () => {
    // Catches: a publisher who filled it in for only one of the two registries.
    const cargo = await readFile(join(SOURCE, "../../Cargo.toml"), "utf8");
    const said = (key) => cargo.match(new RegExp(`^${key} = \\[?"(.+?)"`, "m"))[1];
    const { version, license, author, homepage, repository, bugs } = manifest;
    assert.deepEqual(
      [version, license, author, homepage, repository.url, repository.directory, bugs.url],
      [
        ...["version", "license", "authors", "homepage"].map(said),
        `git+${said("repository")}.git`,
        "bindings/node",
        `${said("repository")}/issues`,
      ],
    );
  });

  // Catches: a client or a Node module in the files that pages and workers load.
  test("imports nothing but itself and, when asked for, a client or the reader of cron texts", async () => {
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
      assert.deepEqual(outside.filter(({ path }) => ![...OPTIONAL, ...NEEDED].includes(path)), [], file);
    }
  });

  test("waits for nothing and looks for no file while it loads", async () => {
    for (const file of await files(".js")) {
      const text = await readFile(join(root, "dist", file), "utf8");
      // CommonJS cannot wait while it loads, and esbuild reports that.
      await transform(text, { format: "cjs", logLevel: "silent" });
      assert.doesNotMatch(text, /import\.meta|new URL\([^)]*import|\b__dirname\b|readFileSync/, file);
    }
    // The control: esbuild does report it.
    await assert.rejects(transform("await 0; export {}", { format: "cjs", logLevel: "silent" }), /await/);
  });
});
