/**
 * The gzipped bytes that each package adds to a bundle, without the Redis client; and the WebAssembly memory of a
 * locker. As a program it prints the former as JSON.
 */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { Locker } from "../../../bindings/node/dist/index.js";
import { mockClient } from "./mock.mjs";
import { table } from "./stats.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PACKAGE = new URL("../../../bindings/node/", import.meta.url);
// The package's own esbuild.
const { build } = createRequire(new URL("package.json", PACKAGE))("esbuild");

const PACKAGES = {
  leasehold: fileURLToPath(new URL("dist/index.js", PACKAGE)),
  redlock: "redlock",
  "redis-semaphore": "redis-semaphore",
};
const LOCKERS = 1_000;

export async function run() {
  const rows = (await bundles()).map(([name, bytes]) => [name, String(bytes)]);
  console.log("\nsizes: bytes that a package brings into a bundle, gzipped (`npm run sizes` has more of leasehold)");
  table([["", "bytes"], ...rows]);
  console.log(`\nWebAssembly's memory of each of ${LOCKERS} lockers on Redis: ${Math.round(memoryOfAll() / LOCKERS)} bytes`);
}

async function bundles() {
  const sizes = [];
  for (const [name, entry] of Object.entries(PACKAGES)) {
    const { outputFiles } = await build({
      stdin: { contents: `import * as all from ${JSON.stringify(entry)}; console.log(all);`, resolveDir: HERE },
      bundle: true,
      minify: true,
      write: false,
      format: "esm",
      platform: "node",
      external: ["ioredis", "redis", "@upstash/redis"],
    });
    sizes.push([name, gzipSync(outputFiles[0].contents, { level: 9 }).length]);
  }
  return sizes;
}

function memoryOfAll() {
  const { Instance } = WebAssembly;
  const memories = [];
  WebAssembly.Instance = function (...args) {
    const instance = new Instance(...args);
    memories.push(instance.exports.memory);
    return instance;
  };
  const client = mockClient();
  const lockers = Array.from({ length: LOCKERS }, () => Locker.from(client));
  WebAssembly.Instance = Instance;
  // They live until their memory was read.
  return lockers.length && memories.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  console.log(JSON.stringify(await bundles()));
}
