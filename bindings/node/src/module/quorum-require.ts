import { checkPlatform } from "./module.js";
import type * as Blob from "./quorum-blob.js";

/** CommonJS can run where `import()` is missing, as in Jest's or other contexts of `node:vm`. */
export async function loadQuorum(): Promise<Blob.NewQuorum> {
  checkPlatform();
  const { compileQuorum } = require("./quorum-blob.js") as typeof Blob;
  return compileQuorum();
}
