import { checkPlatform, leftOut } from "./module.js";
import type * as Blob from "./quorum-blob.js";

/** CommonJS can run where `import()` is missing, as in Jest's or other contexts of `node:vm`. */
export async function loadQuorum(): Promise<Blob.NewQuorum> {
  checkPlatform();
  return required().compileQuorum();
}

function required(): typeof Blob {
  try {
    return require("./quorum-blob.js") as typeof Blob;
  } catch (error) {
    return leftOut(error);
  }
}
