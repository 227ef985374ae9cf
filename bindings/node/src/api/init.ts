import { attempt, config } from "../common/check.js";
import { checkPlatform, supplyModule, wasmModuleAsync, type WasmModule } from "../module/module.js";

/**
 * Compiles the engine ahead of its first use. Only `leasehold/slim` needs it, to be given its module:
 * elsewhere the first locker compiles the engine, in some milliseconds. In a browser this compiles in
 * the background what the main thread may refuse to compile at once.
 *
 * @param module the content of `leasehold/leasehold.wasm`, or a `WebAssembly.Module` of it
 * @throws LeaseholdError `config` if it is something else; `unsupported` where there is no WebAssembly
 */
export async function init(module?: WasmModule | ArrayBuffer | ArrayBufferView): Promise<void> {
  checkPlatform();
  if (module === undefined) {
    await wasmModuleAsync();
    return;
  }
  const isBytes = () => module instanceof ArrayBuffer || ArrayBuffer.isView(module);
  if (!attempt("init: the module cannot be read", isBytes)) {
    supplyModule(module as WasmModule);
    return;
  }
  const compiled = await WebAssembly.compile(module as Uint8Array<ArrayBuffer>).catch(() => {
    throw config("init: these bytes are not those of leasehold.wasm");
  });
  supplyModule(compiled);
}
