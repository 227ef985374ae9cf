/** What is sent to a browser, and what is imported. */
import { readFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { table } from "./stats.mjs";

const FILES = ["src/generated/leasehold.wasm", "src/generated/glue.js", "dist/index.js", "dist/index.workerd.js"];

export async function run() {
  const rows = [["", "bytes", "gzipped"]];
  for (const file of FILES) {
    const content = await readFile(new URL(`../${file}`, import.meta.url));
    rows.push([file, String(content.length), String(gzipSync(content, { level: 9 }).length)]);
  }
  console.log("\nsizes (aim for the first two: 61440 gzipped, limit 92160)");
  table(rows);
}
