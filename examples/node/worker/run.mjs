// Runs the worker on workerd, the runtime of Cloudflare's workers, and visits it ten times at once.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { Miniflare } from "miniflare";
import { checkScheme, fail, promise, readArgs, wrongUse } from "../common.mjs";

const HELP = `Runs worker.mjs on workerd and visits it ten times at once.

  node worker/run.mjs                                       the locks are in the isolate's memory
  node worker/run.mjs --url https://….upstash.io --token …  the locks are in Redis, over HTTP`;

const args = readArgs(HELP, { url: { type: "string" }, token: { type: "string" } });
// The worker has no sockets, only HTTP.
checkScheme(args.url, ["https", "http"], HELP);
if ((args.url === undefined) !== (args.token === undefined)) {
  wrongUse("--url and --token go together", HELP);
}

console.log("Bundling the worker, and starting workerd.");
try {
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
  const [engine, memory] = await Promise.all(
    ["leasehold", "memory"].map((name) => readFile(resolve(`leasehold/${name}.wasm`))),
  );
  const bindings = args.url && { UPSTASH_REDIS_REST_URL: args.url, UPSTASH_REDIS_REST_TOKEN: args.token };
  const workerd = new Miniflare({
    compatibilityDate: "2025-09-01",
    modules: [
      { type: "ESModule", path: "worker.mjs", contents: outputFiles[0].text },
      { type: "CompiledWasm", path: "leasehold.wasm", contents: engine },
      // Of `memory://`, which is all that there is without a Redis.
      { type: "CompiledWasm", path: "memory.wasm", contents: memory },
    ],
    bindings: bindings ?? {},
  });
  await workerd.ready;
  const visits = Array.from({ length: 10 }, async () => (await workerd.dispatchFetch("http://worker/")).json());
  const answers = await Promise.all(visits);
  const failed = answers.find(({ code }) => code !== undefined);
  if (failed !== undefined) {
    throw failed;
  }
  answers.sort((a, b) => a.token - b.token);
  console.table(answers);
  promise(
    answers.every(({ visits }, index) => visits === index + 1),
    "each visit is counted, in the order of the tokens",
  );
  await workerd.dispose();
} catch (error) {
  fail(error);
}
