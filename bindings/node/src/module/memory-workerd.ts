import { instantiate } from "../generated/memory-glue.js";
import type { NewMemory } from "./memory-blob.js";

/**
 * Loads the in-memory store in workers, which may not compile at run time. The module is precompiled and
 * imported only now.
 */
export async function loadMemory(): Promise<NewMemory> {
  const { default: module } = await import("wasm:memory-module");
  return (now, wall) => new (instantiate(module).MemoryStore)(now, wall);
}
