import { instantiate } from "../generated/memory-glue.js";
import type { NewMemory } from "./memory-blob.js";

/** Workers may not compile at run time; the module is compiled ahead, and imported only now. */
export async function loadMemory(): Promise<NewMemory> {
  const { default: module } = await import("wasm:memory-module");
  return (now, wall) => new (instantiate(module).MemoryStore)(now, wall);
}
