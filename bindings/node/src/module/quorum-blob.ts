import { instantiate, type Glue as QuorumGlue } from "../generated/quorum-glue.js";
import base64 from "wasm:quorum-base64";
import { bytesOf } from "./base64.js";

/** Makes a new instance of the quorum engine's module. */
export type NewQuorum = () => QuorumGlue;

let compiled: Promise<WebAssembly.Module> | undefined;
let made: NewQuorum | undefined;

/** Compiles the module at the first call. */
export function quorumModule(): Promise<WebAssembly.Module> {
  return (compiled ??= WebAssembly.compile(bytesOf(base64)));
}

/** Returns what makes instances of the module. */
export async function compileQuorum(): Promise<NewQuorum> {
  const module = await quorumModule();
  // Always the same function, because stores with the same one share instances.
  return (made ??= () => instantiate(module));
}
