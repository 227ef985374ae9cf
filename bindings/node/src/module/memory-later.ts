import type { NewMemory } from "./memory-blob.js";

/** The module is in a file that is imported only now: what never needs it need not load it. */
export async function loadMemory(): Promise<NewMemory> {
  const { compileMemory, newMemory } = await import("./memory-blob.js");
  await compileMemory();
  return newMemory;
}
