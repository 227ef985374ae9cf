import { config, shown } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { messageOf } from "../common/printable.js";
import { compile, compileAsync } from "./source.js";

/** `WebAssembly.Module`, where the platform's types have it: those of Node do not. */
export type WasmModule = typeof globalThis extends {
  WebAssembly: { Module: { prototype: infer Module } };
}
  ? Module
  : object;

let current: WasmModule | undefined;

/** The engine's module, compiled at the first call. */
export function wasmModule(): WasmModule {
  checkPlatform();
  return (current ??= compile());
}

/** The same without blocking, because browsers limit what their main thread may compile at once. */
export async function wasmModuleAsync(): Promise<WasmModule> {
  checkPlatform();
  return (current ??= await compileAsync());
}

/** Throws `unsupported` where there can be no engine. */
export function checkPlatform(): void {
  if (typeof WebAssembly === "undefined") {
    const message = "there is no WebAssembly here, which the lock engine is made of: Node has none under --jitless";
    throw new LeaseholdError("unsupported", message);
  }
}

/** Throws that the module with quorums is not there, as when a program was bundled without it. */
export function leftOut(cause: unknown): never {
  const message = `the engine with quorums could not be loaded: ${messageOf(cause)}; bundle it with the program`;
  throw config(message, cause);
}

/** The module to take from now on. */
export function supplyModule(module: WasmModule): void {
  let exported: readonly { readonly name: string }[];
  try {
    // Not `instanceof`: it may come from another realm.
    exported = WebAssembly.Module.exports(module as WebAssembly.Module);
  } catch {
    throw config(`init: the module must be a WebAssembly.Module, not ${shown(module)}`);
  }
  if (!exported.some(({ name }) => name === "__wbindgen_start")) {
    throw config("init: this module is not that of leasehold.wasm");
  }
  current = module;
}
