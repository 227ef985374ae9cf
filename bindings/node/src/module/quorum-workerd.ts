import { instantiate } from "../generated/quorum-glue.js";
import type { NewQuorum } from "./quorum-blob.js";

let made: NewQuorum | undefined;

/**
 * Loads the quorum engine in workers, which may not compile at run time. The module is precompiled and
 * imported only now.
 */
export async function compileQuorum(): Promise<NewQuorum> {
  const { default: module } = await import("wasm:quorum-module");
  return (made ??= () => instantiate(module));
}
