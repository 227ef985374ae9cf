import { instantiate } from "../generated/quorum-glue.js";
import type { Quorum } from "./quorum-blob.js";

let made: Quorum | undefined;

/**
 * Loads the quorum engine in workers, which may not compile at run time. The module is precompiled and
 * imported only now.
 */
export async function compileQuorum(): Promise<Quorum> {
  const { default: module } = await import("wasm:quorum-module");
  return (made ??= { module, newInstance: () => instantiate(module) });
}
