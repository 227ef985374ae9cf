import { instantiate } from "../generated/quorum-glue.js";
import type { NewQuorum } from "./quorum-blob.js";

let made: NewQuorum | undefined;

/** Workers may not compile at run time; the module is compiled ahead, and imported only now. */
export async function compileQuorum(): Promise<NewQuorum> {
  const { default: module } = await import("wasm:quorum-module");
  return (made ??= () => instantiate(module));
}
