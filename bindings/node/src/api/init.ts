import { attempt, config } from "../common/check.js";
import { checkPlatform, supplyModule, wasmModuleAsync, type WasmModule } from "../module/module.js";

/**
 * Compiles the engine before its first use.
 *
 * Only `leasehold/slim` needs this call, because it has no WebAssembly of its own. Otherwise the first locker
 * compiles the engine, which takes a few milliseconds. On a browser's main thread, which may refuse to
 * compile synchronously, `await init()` compiles in the background.
 *
 * @param module the content of `leasehold/leasehold.wasm`, or a `WebAssembly.Module` of it
 * @throws LeaseholdError `config` if the module is anything else; `unsupported` if the runtime has no
 * WebAssembly
 * @example
 * ```ts
 * import { init, Locker } from "leasehold/slim";
 * import module from "leasehold/leasehold.wasm"; // as your bundler imports WebAssembly
 * await init(module);
 * ```
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
    throw config("init: these bytes are not leasehold.wasm");
  });
  supplyModule(compiled);
}
