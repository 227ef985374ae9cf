import { instantiate, type Glue as QuorumGlue } from "../generated/quorum-glue.js";
import base64 from "wasm:quorum-base64";
import { bytesOf } from "./base64.js";

/** A new instance of the module of the engine with quorums. */
export type NewQuorum = () => QuorumGlue;

let compiled: Promise<WebAssembly.Module> | undefined;
let made: NewQuorum | undefined;

/** Compiles the module at the first call. */
export async function compileQuorum(): Promise<NewQuorum> {
  compiled ??= WebAssembly.compile(bytesOf(base64));
  const module = await compiled;
  // The same function each time: instances are shared by those who have the same.
  return (made ??= () => instantiate(module));
}
