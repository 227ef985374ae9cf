import { checkPlatform, leftOut } from "./module.js";
import type { NewQuorum } from "./quorum-blob.js";

/**
 * Loads the module of the engine with quorums, which is in a file of its own: a program that never needs it does not load it.
 */
export async function loadQuorum(): Promise<NewQuorum> {
  checkPlatform();
  const { compileQuorum } = await import("./quorum-blob.js").catch(leftOut);
  return compileQuorum();
}
