import { config, shown } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { messageOf } from "../common/printable.js";
import { compile, compileAsync } from "./source.js";

/** `WebAssembly.Module`, where the platform's types have it. Those of Node do not. */
export type WasmModule = typeof globalThis extends {
  WebAssembly: { Module: { prototype: infer Module } };
}
  ? Module
  : object;

let current: WasmModule | undefined;

/** Returns the engine's module, which it compiles at the first call. */
export function wasmModule(): WasmModule {
  checkPlatform();
  return (current ??= compile());
}

/**
 * Returns the engine's module, compiled without blocking: browsers limit what their main thread may compile
 * synchronously.
 */
export async function wasmModuleAsync(): Promise<WasmModule> {
  checkPlatform();
  return (current ??= await compileAsync());
}

/** Throws `unsupported` if the runtime has no WebAssembly. */
export function checkPlatform(): void {
  if (typeof WebAssembly === "undefined") {
    const message = "this runtime has no WebAssembly, which the lock engine needs; run Node without --jitless";
    throw new LeaseholdError("unsupported", message);
  }
}

/** Throws the error of a quorum engine that cannot be loaded, as when a program was bundled without it. */
export function leftOut(cause: unknown): never {
  const message = `the quorum engine could not be loaded: ${messageOf(cause)}; bundle it with the program`;
  throw config(message, cause);
}

/** Sets the module to use from now on. */
export function supplyModule(module: WasmModule): void {
  let exported: readonly { readonly name: string }[];
  try {
    // Not `instanceof`, because the module may come from another realm.
    exported = WebAssembly.Module.exports(module as WebAssembly.Module);
  } catch {
    throw config(`init: the module must be a WebAssembly.Module; got ${shown(module)}`);
  }
  if (!exported.some(({ name }) => name === "__wbindgen_start")) {
    throw config("init: this module is not leasehold.wasm");
  }
  current = module;
}
