import { instantiate, type Glue } from "../generated/memory-glue.js";
import base64 from "wasm:memory-base64";
import { bytesOf } from "./base64.js";

/**
 * An in-memory server, which runs in its own WebAssembly instance and executes the calls of engines in
 * others.
 */
export type MemoryServer = InstanceType<Glue["MemoryStore"]>;

/** Makes an in-memory server, whose clock starts at the wall clock's time. */
export type NewMemory = (now: number, wall: number) => MemoryServer;

let compiled: Promise<WebAssembly.Module> | undefined;

/** Compiles the module at the first call. Each server gets its own instance. */
export async function compileMemory(): Promise<NewMemory> {
  compiled ??= WebAssembly.compile(bytesOf(base64));
  const module = await compiled;
  return (now, wall) => new (instantiate(module).MemoryStore)(now, wall);
}
