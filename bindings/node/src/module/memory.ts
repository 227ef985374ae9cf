import type { MemoryServer, NewMemory } from "./memory-blob.js";

export type { MemoryServer, NewMemory };

/**
 * Loads the module of the store in memory, which is in a file of its own: what never needs it need not load it.
 * For workerd the build puts `memory-workerd.ts` in this one's place.
 */
export async function loadMemory(): Promise<NewMemory> {
  const { compileMemory } = await import("./memory-blob.js");
  return compileMemory();
}
