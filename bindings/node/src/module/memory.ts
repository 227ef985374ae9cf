import type { MemoryServer, NewMemory } from "./memory-blob.js";

export type { MemoryServer, NewMemory };

/**
 * Loads the in-memory store. Its module is in a file of its own, so a program that never needs it does not
 * load it. For workerd the build replaces this file by `memory-workerd.ts`.
 */
export async function loadMemory(): Promise<NewMemory> {
  const { compileMemory } = await import("./memory-blob.js");
  return compileMemory();
}
