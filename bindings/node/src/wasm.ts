import { config } from "./options.js";
import { instantiate, type Glue } from "./generated/glue.js";
import { supplyModule, wasmModule, wasmModuleAsync, type WasmModule } from "./module.js";

export type { Glue, WasmModule };
export type Engine = InstanceType<Glue["Engine"]>;
export type MemoryServer = InstanceType<Glue["MemoryStore"]>;

/**
 * Compiles the engine ahead of its first use. Never needed, but for `leasehold/slim`, which is to be
 * given its module: elsewhere the first locker compiles it, in some milliseconds. A browser's main
 * thread may refuse to compile at once what this compiles in the background.
 *
 * @param module the content of `leasehold/leasehold.wasm`, or a `WebAssembly.Module` of it
 * @throws LeaseholdError `config` if it is something else
 */
export async function init(module?: WasmModule | ArrayBuffer | ArrayBufferView): Promise<void> {
  if (module === undefined) {
    await wasmModuleAsync();
    return;
  }
  if (!(module instanceof ArrayBuffer) && !ArrayBuffer.isView(module)) {
    supplyModule(module);
    return;
  }
  try {
    supplyModule(await WebAssembly.compile(module as Uint8Array<ArrayBuffer>));
  } catch {
    throw config("init: these bytes are not those of leasehold.wasm");
  }
}

/** A new instance of the engine's module: nothing is shared with another one. */
export function newInstance(): Glue {
  return instantiate(wasmModule());
}
