// Builds the package's dist/ from src/. `cargo xtask package` runs it after it has built src/generated/ from
// the Rust crate leasehold-wasm.
import { cp, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { rollup } from "rollup";
import { dts } from "rollup-plugin-dts";

process.chdir(fileURLToPath(new URL(".", import.meta.url)));

/** Never part of a bundle, because a program must build without them. */
const EXTERNAL = ["ioredis", "redis", "croner", "node:*"];
const { version } = JSON.parse(await readFile("package.json", "utf8"));
/** The WebAssembly files, by what precedes `base64` or `module` in the names that the sources import. */
const WASM = { "": "leasehold.wasm", "memory-": "memory.wasm", "quorum-": "quorum.wasm" };
/** Becomes dist/ when it is complete. */
const OUT = "dist-new";

/**
 * Resolves the module from src/module/<source>.ts, and the errors from one file for all entries. The clients
 * that `Locker.connect` opens run only on Node and compatible runtimes; elsewhere no bundler should look for
 * them.
 */
const resolve = (source, extension, { connects, memory, quorum, main }) => ({
  name: "leasehold",
  setup({ onResolve }) {
    if (!connects) {
      onResolve({ filter: /\/connect\.js$/ }, () => ({
        path: fileURLToPath(new URL("src/store/connect-nowhere.ts", import.meta.url)),
      }));
    }
    // The code of worker threads, which is loaded only when it is used.
    onResolve({ filter: /\/thread\/open\.js$/ }, () =>
      connects
        ? { path: `./leasehold-thread${extension}`, external: true }
        : { path: fileURLToPath(new URL("src/thread/open-nowhere.ts", import.meta.url)) },
    );
    if (extension === ".cjs") {
      onResolve({ filter: /\/load\.js$/ }, () => ({
        path: fileURLToPath(new URL("src/store/load-require.ts", import.meta.url)),
      }));
    }
    onResolve({ filter: /\/source\.js$/ }, () => ({
      path: fileURLToPath(new URL(`src/module/${source}.ts`, import.meta.url)),
    }));
    for (const [part, wasm] of Object.entries(WASM)) {
      onResolve({ filter: new RegExp(`^wasm:${part}base64$`) }, () => ({ path: fileURLToPath(new URL(`src/generated/${wasm}`, import.meta.url)) }));
      onResolve({ filter: new RegExp(`^wasm:${part}module$`) }, () => ({ path: `./${wasm}`, external: true }));
    }
    if (memory !== undefined) {
      onResolve({ filter: /\/module\/memory\.js$/ }, () => ({
        path: fileURLToPath(new URL(`src/module/memory-${memory}.ts`, import.meta.url)),
      }));
    }
    // Shared, because otherwise `instanceof LeaseholdError` would be false for an error of another entry.
    onResolve({ filter: /\/errors\.js$/ }, () => ({ path: `./error-classes${extension}`, external: true }));
    // Everything of an entry except the errors.
    if (main !== undefined) {
      onResolve({ filter: /\/main\.js$/ }, () => ({ path: `./${main}${extension}`, external: true }));
    }
    // Only entries that connect use it.
    onResolve({ filter: /\/reach\.js$/ }, () => ({ path: `./reach${extension}`, external: true }));
    // Most of the package, and the same for Node and for browsers.
    onResolve({ filter: /\/blob\.js$/ }, () => ({ path: `./blob${extension}`, external: true }));
    // The in-memory store, which is loaded only when it is used.
    onResolve({ filter: /\/memory-blob\.js$/ }, () => ({ path: `./leasehold-memory${extension}`, external: true }));
    // The quorum engine, which is loaded only when it is used.
    onResolve({ filter: /\/quorum-blob\.js$/ }, () => ({ path: `./${quorum}${extension}`, external: true }));
  },
});

/**
 * Resolves the parts of the worker thread's program, which is one text without a file: it has its own copy of
 * everything, gets the compiled modules from the program, and looks for clients where the program is.
 */
const alone = {
  name: "leasehold-thread",
  setup({ onResolve }) {
    const replaced = { "load": "store/load-from", "source": "module/slim", "module/memory": "module/memory-elsewhere" };
    for (const [part, by] of Object.entries(replaced)) {
      onResolve({ filter: new RegExp(`/${part}\\.js$`) }, () => ({ path: fileURLToPath(new URL(`src/${by}.ts`, import.meta.url)) }));
    }
  },
};

/** Returns a plugin that inlines the worker thread's program as a text. */
const inlined = (code) => ({
  name: "leasehold-code",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^thread:code\.txt$/ }, ({ path }) => ({ path, namespace: "thread" }));
    onLoad({ filter: /.*/, namespace: "thread" }, () => ({ contents: code, loader: "text" }));
  },
});

/**
 * Makes classes keep their names in consoles. esbuild writes a class that mentions itself as `var Name =
 * class _Name`, and consoles show the latter. `keepNames` would fix this, too, but then no bundler could drop
 * such a class. Every character stays at its place, so the source map stays right.
 */
const keepClassNames = (code) =>
  [...code.matchAll(/^var (\w+) = class _\1\b/gm)].reduce(
    (text, [, name]) => text.replace(new RegExp(`\\b_${name}\\b`, "g"), `${name} `),
    code,
  );

const WORKERD = { connects: false, memory: "workerd", quorum: "leasehold-quorum.workerd" };

/**
 * The files that all platforms share. A program that never uses memory or quorums may be bundled without
 * theirs.
 */
const SHARED = {
  fence: "src/fence/index.ts",
  errors: "src/errors.ts",
  "error-classes": "src/common/errors.ts",
  blob: "src/module/blob.ts",
  "leasehold-memory": "src/module/memory-blob.ts",
  "leasehold-quorum": "src/module/quorum-blob.ts",
  reach: "src/adapters/reach.ts",
  "leasehold-thread": "src/thread/open.ts",
};

/** The options of all bundles. */
const OPTIONS = {
  bundle: true,
  target: "es2022",
  // A single character beyond Latin-1 makes V8 decode the whole file more slowly, and scan twice the bytes.
  charset: "ascii",
  inject: ["src/common/text.ts"],
  define: { PACKAGE_VERSION: JSON.stringify(version) },
  loader: { ".lua": "text", ".sql": "text", ".txt": "text", ".jsonc": "json", ".wasm": "base64" },
  logLevel: "warning",
  write: false,
};

/** Returns the program of the worker thread. It is minified, because no reader and no map could follow it. */
async function threadCode() {
  const entryPoints = ["src/thread/worker.ts"];
  const { outputFiles } = await build({ ...OPTIONS, entryPoints, format: "iife", platform: "neutral", minify: true, plugins: [alone] });
  return outputFiles[0].text;
}

async function bundle(entries, source, extension, { connects = true, memory, quorum = "leasehold-quorum", main } = {}) {
  const { outputFiles } = await build({
    ...OPTIONS,
    entryPoints: entries,
    outdir: OUT,
    outExtension: { ".js": extension },
    format: extension === ".cjs" ? "cjs" : "esm",
    // `node` has one effect: Node's `import` can read the export names of a CommonJS file.
    platform: extension === ".cjs" ? "node" : "neutral",
    // CommonJS also runs where `import()` is missing, as in Jest or other `node:vm` contexts.
    supported: { "dynamic-import": extension !== ".cjs" },
    external: EXTERNAL,
    plugins: [inlined(THREAD), resolve(source, extension, { connects, memory, quorum, main })],
    // The map refers to the sources in the package.
    sourcemap: true,
    sourcesContent: false,
  });
  await Promise.all(outputFiles.map(({ path, text }) => writeFile(path, keepClassNames(text))));
}

/**
 * Matches the mark that TypeScript leaves for private members. With the mark only objects of the class have
 * its type, so a strict test could not use a stub for a lock. No function of this package takes such an
 * object as an argument, except a ticket, of which only the text counts.
 */
const PRIVATE = /(?<=^declare class (?:Bundle|Job|Lease|LeaseEvents|Lock|Locker|LockSet|Observer|Permit|RwLock|RwPart|Semaphore|Tenures|Ticket|Turn|Turns)\b[^{]*\{\n) +#private;\n/gm;

/** Writes the types in one file for each entry, and again for CommonJS. */
async function types(entries) {
  const compilerOptions = { stripInternal: true };
  const bundled = await rollup({
    input: entries,
    preserveEntrySignatures: "allow-extension",
    plugins: [dts({ tsconfig: "tsconfig.json", compilerOptions })],
  });
  const { output } = await bundled.write({
    dir: OUT,
    banner: '/// <reference lib="esnext.disposable" />',
    entryFileNames: "[name].d.ts",
    chunkFileNames: "shared-[name].d.ts",
    minifyInternalExports: false,
  });
  await bundled.close();
  const names = output.map((file) => file.fileName);
  await writeFile(`${OUT}/slim.d.ts`, 'export * from "./index.js";\n');
  for (const name of [...names, "slim.d.ts"]) {
    const text = (await readFile(`${OUT}/${name}`, "utf8")).replace(PRIVATE, "");
    await writeFile(`${OUT}/${name}`, text);
    const cts = text.replace(/(from\s+["']\.\/[^"']+)\.js(["'])/g, "$1.cjs$2");
    await writeFile(`${OUT}/${name.replace(/\.d\.ts$/, ".d.cts")}`, cts);
  }
}

/** Copies the project's fields from Cargo.toml, so that a publisher fills them in at one place. */
async function manifest() {
  const cargo = await readFile("../../Cargo.toml", "utf8");
  const said = (key) => cargo.match(new RegExp(`^${key} = \\[?"([^"]*)"`, "m"))[1];
  const text = await readFile("package.json", "utf8");
  const repository = said("repository");
  const taken = {
    author: said("authors"),
    homepage: said("homepage"),
    repository: { type: "git", url: `git+${repository}.git`, directory: "bindings/node" },
    bugs: { url: `${repository}/issues` },
  };
  const filled = `${JSON.stringify({ ...JSON.parse(text), ...taken }, null, 2)}\n`;
  if (filled !== text) await writeFile("package.json", filled);
}

await manifest();
const THREAD = await threadCode();
await rm(OUT, { recursive: true, force: true });
await mkdir(OUT);
await Promise.all([
  ...[".js", ".cjs"].flatMap((extension) => [
    bundle({ ...SHARED, index: "src/index.ts", main: "src/main.ts" }, "inline", extension, { main: "main" }),
    bundle({ slim: "src/index.ts" }, "slim", extension),
    // Also for `require`, which Jest's jsdom calls.
    bundle({ "index.browser": "src/index.ts", "main.browser": "src/main.ts" }, "inline", extension, { connects: false, main: "main.browser" }),
    bundle({ "slim.browser": "src/index.ts" }, "slim", extension, { connects: false }),
  ]),
  bundle({ "index.workerd": "src/index.ts", "main.workerd": "src/main.ts", "leasehold-quorum.workerd": "src/module/quorum-workerd.ts" }, "workerd", ".js", { ...WORKERD, main: "main.workerd" }),
  bundle({ "slim.workerd": "src/index.ts" }, "slim", ".js", WORKERD),
  types({ index: "src/index.ts", fence: "src/fence/index.ts", errors: "src/errors.ts" }),
]);
for (const wasm of Object.values(WASM)) await cp(`src/generated/${wasm}`, `${OUT}/${wasm}`);
await rm("dist", { recursive: true, force: true });
await rename(OUT, "dist");
// npm packs no file from outside the folder.
for (const license of ["LICENSE-MIT", "LICENSE-APACHE"]) await cp(`../../${license}`, license);
