import { instantiate, type Glue } from "../generated/memory-glue.js";
import base64 from "wasm:memory-base64";
import { bytesOf } from "./base64.js";

/** What executes the calls of engines in the memory of its own instance. */
export type MemoryServer = InstanceType<Glue["MemoryStore"]>;

/** Makes a store in memory, whose clock begins with the wall's. */
export type NewMemory = (now: number, wall: number) => MemoryServer;

let module: WebAssembly.Module | undefined;
let compiling: Promise<WebAssembly.Module> | undefined;

/** Compiles the module ahead of its first use, because browsers limit what they compile at once. */
export async function compileMemory(): Promise<void> {
  compiling ??= WebAssembly.compile(bytesOf(base64));
  module ??= await compiling;
}

/** A store in memory, in an instance of its own. Its clock begins with the wall's. */
export function newMemory(now: number, wall: number): MemoryServer {
  module ??= new WebAssembly.Module(bytesOf(base64));
  const { MemoryStore } = instantiate(module);
  return new MemoryStore(now, wall);
}
