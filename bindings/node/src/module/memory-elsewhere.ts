import { config } from "../common/check.js";
import type { NewMemory } from "./memory-blob.js";

/** Rejects. It replaces `loadMemory` in a worker thread, because in-memory stores are in the program's thread. */
export async function loadMemory(): Promise<NewMemory> {
  throw config("an in-memory store is in the thread of the program");
}
