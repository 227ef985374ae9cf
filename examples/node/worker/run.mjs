// Runs worker.mjs on workerd, the runtime of Cloudflare's workers, and visits it ten times at once.
//
//   node worker/run.mjs      the locks are in the isolate's memory
//   UPSTASH_REDIS_REST_URL=https://….upstash.io UPSTASH_REDIS_REST_TOKEN=… node worker/run.mjs
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { Miniflare } from "miniflare";

// As `wrangler` does for a real worker: a bundle, and the engine as a module beside it.
const { outputFiles } = await build({
  entryPoints: [fileURLToPath(new URL("worker.mjs", import.meta.url))],
  bundle: true,
  write: false,
  format: "esm",
  conditions: ["workerd", "worker", "browser"],
  external: ["*.wasm"],
});
const { resolve } = createRequire(import.meta.url);
const wasm = async (path) => ({ type: "CompiledWasm", path, contents: await readFile(resolve(`leasehold/${path}`)) });
const { UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN } = process.env;
const workerd = new Miniflare({
  compatibilityDate: "2025-09-01",
  modules: [
    { type: "ESModule", path: "worker.mjs", contents: outputFiles[0].text },
    await wasm("leasehold.wasm"),
    // `memory://` is the only store without a Redis.
    await wasm("memory.wasm"),
  ],
  bindings: UPSTASH_REDIS_REST_URL ? { UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN } : {},
});
const visits = Array.from({ length: 10 }, async () => (await workerd.dispatchFetch("http://worker/")).json());
const answers = await Promise.all(visits);
console.table(answers.sort((a, b) => a.token - b.token));
await workerd.dispose();
// Each visit is counted, in the order of the tokens; or else there is an error among the answers.
process.exitCode = answers.every(({ visits }, index) => visits === index + 1) ? 0 : 1;
