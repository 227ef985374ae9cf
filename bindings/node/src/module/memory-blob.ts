import { instantiate, type Glue } from "../generated/memory-glue.js";
import base64 from "wasm:memory-base64";
import { bytesOf } from "./base64.js";

/** What executes the calls of engines in the memory of its own instance. */
export type MemoryServer = InstanceType<Glue["MemoryStore"]>;

/** Makes a store in memory, whose clock begins with the wall's. */
export type NewMemory = (now: number, wall: number) => MemoryServer;

let compiled: Promise<WebAssembly.Module> | undefined;

/** Compiles the module at the first call. Each store is in an instance of its own. */
export async function compileMemory(): Promise<NewMemory> {
  compiled ??= WebAssembly.compile(bytesOf(base64));
  const module = await compiled;
  return (now, wall) => new (instantiate(module).MemoryStore)(now, wall);
}
