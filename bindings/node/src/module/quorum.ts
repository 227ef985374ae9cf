import { checkPlatform, leftOut, type WasmModule } from "./module.js";
import type { NewQuorum } from "./quorum-blob.js";

/**
 * Loads the quorum engine. Its module is in a file of its own, so a program that never needs it does not load
 * it.
 */
export async function loadQuorum(): Promise<NewQuorum> {
  checkPlatform();
  const { compileQuorum } = await import("./quorum-blob.js").catch(leftOut);
  return compileQuorum();
}

/** Loads the module of the quorum engine, to give it to another thread. */
export async function loadQuorumModule(): Promise<WasmModule> {
  const { quorumModule } = await import("./quorum-blob.js").catch(leftOut);
  return quorumModule();
}
