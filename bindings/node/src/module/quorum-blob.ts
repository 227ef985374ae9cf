import { instantiate, type Glue as QuorumGlue } from "../generated/quorum-glue.js";
import base64 from "wasm:quorum-base64";
import { bytesOf } from "./base64.js";

/** Makes a new instance of the quorum engine's module. */
export type NewQuorum = () => QuorumGlue;

/** The quorum engine's module, and a function that makes instances of it. */
export interface Quorum {
  readonly module: WebAssembly.Module;
  readonly newInstance: NewQuorum;
}

let compiled: Promise<WebAssembly.Module> | undefined;
let made: Quorum | undefined;

/** Compiles the module at the first call. */
export async function compileQuorum(): Promise<Quorum> {
  compiled ??= WebAssembly.compile(bytesOf(base64));
  const module = await compiled;
  // Always the same function, because stores with the same one share instances.
  return (made ??= { module, newInstance: () => instantiate(module) });
}
