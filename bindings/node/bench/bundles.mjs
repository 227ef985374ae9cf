/** Bytes, gzipped, that each package brings into a bundle, without the client of Redis: as JSON. */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

// The package's own.
const { build } = createRequire(new URL("../package.json", import.meta.url))("esbuild");

const PACKAGES = {
  leasehold: fileURLToPath(new URL("../dist/index.js", import.meta.url)),
  redlock: "redlock",
  "redis-semaphore": "redis-semaphore",
};

const resolveDir = fileURLToPath(new URL(".", import.meta.url));
const sizes = [];
for (const [name, entry] of Object.entries(PACKAGES)) {
  const { outputFiles } = await build({
    stdin: { contents: `import * as all from ${JSON.stringify(entry)}; console.log(all);`, resolveDir },
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    platform: "node",
    external: ["ioredis", "redis", "@upstash/redis"],
  });
  sizes.push([name, gzipSync(outputFiles[0].contents, { level: 9 }).length]);
}
console.log(JSON.stringify(sizes));
