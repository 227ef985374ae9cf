import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { atExit } from "./wait.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");

/** Bundles parts of src/ that the package does not export separately, and returns the file. */
export async function bundleParts(name, contents, options = {}) {
  // In this folder, so that imports are found.
  const cache = join(root, "node_modules/.cache");
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, `${name}-`));
  atExit(() => rmSync(folder, { recursive: true, force: true }));
  const outfile = join(folder, `${name}.mjs`);
  await build({
    stdin: { contents, resolveDir: root },
    bundle: true,
    format: "esm",
    platform: "neutral",
    target: "es2022",
    loader: { ".lua": "text", ".sql": "text", ".txt": "text", ".jsonc": "json", ".wasm": "base64" },
    define: { PACKAGE_VERSION: '"of a test"' },
    outfile,
    logLevel: "error",
    ...options,
  });
  return outfile;
}
