import { instantiate } from "../generated/quorum-glue.js";
import type { WasmModule } from "./module.js";
import type { NewQuorum } from "./quorum-blob.js";

/** Returns what makes instances of a compiled module of the quorum engine, which another thread loaded. */
export function quorumOf(module: WasmModule): NewQuorum {
  return () => instantiate(module as WebAssembly.Module);
}
