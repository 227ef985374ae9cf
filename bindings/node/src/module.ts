import { LeaseholdError } from "./errors.js";
import { compile, compileAsync } from "./module/source.js";

/** `WebAssembly.Module`, where the types of the platform have it: those of Node alone do not. */
export type WasmModule = typeof globalThis extends {
  WebAssembly: { Module: { prototype: infer Module } };
}
  ? Module
  : object;

let current: WasmModule | undefined;

/** The engine's module, compiled at the first call. */
export function wasmModule(): WasmModule {
  return (current ??= compile());
}

/** The same without blocking: browsers limit what their main thread may compile at once. */
export async function wasmModuleAsync(): Promise<WasmModule> {
  return (current ??= await compileAsync());
}

/** The module to take from now on. */
export function supplyModule(module: WasmModule): void {
  // Not `instanceof`: it may come from another realm.
  if (Object.prototype.toString.call(module) !== "[object WebAssembly.Module]") {
    throw new LeaseholdError("config", `init: the module must be a WebAssembly.Module, not ${kind(module)}`);
  }
  current = module;
}

function kind(value: unknown): string {
  return value === null ? "null" : typeof value === "object" ? "another object" : `a ${typeof value}`;
}
