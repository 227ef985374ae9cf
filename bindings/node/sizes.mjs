// Prints what each import adds to a program's bundle: the table of docs/book/src/javascript.md, as `npm run sizes`.
import { readFile } from "node:fs/promises";
import { argv } from "node:process";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build, transformSync } from "esbuild";

const DIST = new URL("./dist/", import.meta.url);
const CLIENTS = ["ioredis", "redis"];
const CRON = "croner";
const PARTS = [CRON, "./leasehold-quorum.js", "./leasehold-memory.js", "./leasehold-thread.js"];

const gzipped = (content) => gzipSync(content, { level: 9 }).length;
const ofFile = async (name) => gzipped(await readFile(new URL(name, DIST)));

/** Returns the bytes of a bundle in one file, minified and gzipped. */
async function ofImport(names, file, external = []) {
  const contents = `import { ${names} } from ${JSON.stringify(fileURLToPath(new URL(file, DIST)))}; console.log(${names});`;
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: fileURLToPath(DIST) },
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    platform: "node",
    external: [...CLIENTS, ...external],
  });
  return gzipped(outputFiles[0].contents);
}

/** Returns the bytes of a package that the program imports when it is needed, minified and gzipped. */
async function ofPackage(name) {
  const file = fileURLToPath(import.meta.resolve(name));
  return gzipped(transformSync(await readFile(file, "utf8"), { minify: true }).code);
}

/** Returns the rows of the table: the import, and its bytes. */
export async function sizes() {
  return [
    ["`leasehold/errors`, or only the errors from `leasehold`", await ofImport("LeaseholdError, LeaseLostError", "index.js")],
    ["`leasehold`, for locks at one server", await ofImport("Locker", "index.js", PARTS)],
    ["`leasehold`, with quorums, the store in memory, worker threads and cron texts in one file", await ofImport("Locker", "index.js")],
    ["of these the file of quorums", await ofFile("leasehold-quorum.js")],
    ["of these the file of the store in memory", await ofFile("leasehold-memory.js")],
    ["of these the file of worker threads", await ofFile("leasehold-thread.js")],
    ["of these the package that reads cron texts", await ofPackage(CRON)],
    ["`leasehold/slim`, without `leasehold.wasm` and those four", await ofImport("Locker, init", "slim.js", PARTS)],
    ["`leasehold.wasm`", await ofFile("leasehold.wasm")],
    ["`leasehold/fence`", await ofImport("Gate, fenceExpress, FencedRedis, fencedTransaction", "fence.js")],
  ];
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  for (const [what, bytes] of await sizes()) console.log(`| ${what} | ${Math.ceil(bytes / 1_000)} |`);
}
