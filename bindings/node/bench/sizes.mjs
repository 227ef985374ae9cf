/** What is sent to a browser, what is imported, and what a locker costs of WebAssembly's memory. */
import { readFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { Locker } from "../dist/index.js";
import { mockClient } from "./mock.mjs";
import { table } from "./stats.mjs";

const FILES = ["src/generated/leasehold.wasm", "src/generated/glue.js", "dist/blob.js", "dist/main.js", "dist/main.workerd.js"];

const LOCKERS = 1_000;

export async function run() {
  const rows = [["", "bytes", "gzipped"]];
  for (const file of FILES) {
    const content = await readFile(new URL(`../${file}`, import.meta.url));
    rows.push([file, String(content.length), String(gzipSync(content, { level: 9 }).length)]);
  }
  console.log("\nsizes (aim for the first two: 62000 gzipped, limit 84000)");
  table(rows);
  console.log(`\nWebAssembly's memory of each of ${LOCKERS} lockers on Redis: ${Math.round(memoryOfAll() / LOCKERS)} bytes`);
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
  // They are there until their memory was looked at.
  return lockers.length && memories.reduce((sum, { buffer }) => sum + buffer.byteLength, 0);
}
