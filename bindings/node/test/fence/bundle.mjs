import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { atExit } from "../support/wait.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");

/** Bundles `leasehold/fence`, with what the tests look at besides, and returns the file. */
async function bundleFence() {
  // There, so that what it imports is found.
  const cache = join(root, "node_modules/.cache");
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, "fence-"));
  atExit(() => rmSync(folder, { recursive: true, force: true }));
  const outfile = join(folder, "fence.mjs");
  await build({
    stdin: {
      contents: `
        export * from "./src/fence/index.ts";
        export { fenceKey, slotOf } from "./src/fence/redis/key.ts";
        export { partsOf } from "./src/fence/redis/script.ts";`,
      resolveDir: root,
    },
    bundle: true,
    format: "esm",
    platform: "neutral",
    target: "es2022",
    loader: { ".lua": "text", ".sql": "text" },
    outfile,
    logLevel: "error",
  });
  return outfile;
}

/** For other processes. */
export const file = await bundleFence();

/** What is under test. */
export const fence = await import(pathToFileURL(file));
