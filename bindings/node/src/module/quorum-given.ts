import { instantiate } from "../generated/quorum-glue.js";
import type { WasmModule } from "./module.js";
import type { NewQuorum } from "./quorum-blob.js";

/** Returns a function that makes instances of the quorum engine, from a module that another thread compiled. */
export function quorumOf(module: WasmModule): NewQuorum {
  return () => instantiate(module as WebAssembly.Module);
}
