import { config } from "../common/check.js";

// The program provides the module, by `init`.

export function compile(): never {
  throw config(
    "leasehold/slim has no WebAssembly of its own; first `await init(module)` with the module of leasehold/leasehold.wasm",
  );
}

export function compileAsync(): Promise<never> {
  return Promise.resolve().then(compile);
}
