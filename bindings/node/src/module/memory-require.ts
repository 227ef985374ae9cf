import type * as Blob from "./memory-blob.js";

/** CommonJS can run where `import()` is missing, as in Jest's or other contexts of `node:vm`. */
export async function loadMemory(): Promise<Blob.NewMemory> {
  const { compileMemory } = require("./memory-blob.js") as typeof Blob;
  return compileMemory();
}
