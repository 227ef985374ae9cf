import { bytesOf } from "./base64.js";
import { base64 } from "./blob.js";

// For platforms that may compile at run time. The module is part of the bundle, so no file must be found.

export function compile(): WebAssembly.Module {
  return new WebAssembly.Module(bytesOf(base64));
}

export function compileAsync(): Promise<WebAssembly.Module> {
  return WebAssembly.compile(bytesOf(base64));
}
