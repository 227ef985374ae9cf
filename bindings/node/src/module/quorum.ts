import { checkPlatform, leftOut } from "./module.js";
import type { Quorum } from "./quorum-blob.js";

/**
 * Loads the quorum engine. Its module is in a file of its own, so a program that never needs it does not load
 * it.
 */
export async function loadQuorum(): Promise<Quorum> {
  checkPlatform();
  const { compileQuorum } = await import("./quorum-blob.js").catch(leftOut);
  return compileQuorum();
}
