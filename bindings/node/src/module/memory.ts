import { newMemory, type MemoryServer, type NewMemory } from "./memory-blob.js";

export type { MemoryServer, NewMemory };

/**
 * Loads the module of the store in memory. The build puts `memory-later.ts` in this one's place for
 * browsers, which load it when it is needed, and `memory-workerd.ts` for workerd.
 */
export function loadMemory(): NewMemory | Promise<NewMemory> {
  return newMemory;
}
