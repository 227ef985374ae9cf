import { mkdtempSync, mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { atExit } from "../support/wait.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");

/**
 * Bundles the adapters, which the package does not export by themselves, and returns the file;
 * `versions` says what to import instead of a package, such as { redis: "redis-v4" }.
 */
export async function bundleFile(versions = {}) {
  // There, so that what it imports is found.
  const cache = join(root, "node_modules/.cache");
  mkdirSync(cache, { recursive: true });
  const dir = mkdtempSync(join(cache, "adapters-"));
  atExit(() => rmSync(dir, { recursive: true, force: true }));
  const outfile = join(dir, "adapters.mjs");
  await build({
    stdin: {
      contents: `
        export * from "./src/adapters/index.ts";
        export * from "./src/connect.ts";
        export { parseUrl } from "./src/adapters/url.ts";
        export { LeaseholdError } from "./src/errors.ts";`,
      resolveDir: root,
    },
    bundle: true,
    format: "esm",
    platform: "neutral",
    target: "es2022",
    alias: versions,
    external: ["ioredis", "redis", ...Object.values(versions)],
    outfile,
    logLevel: "error",
  });
  return outfile;
}

export async function bundle(versions) {
  return import(pathToFileURL(await bundleFile(versions)));
}
