import module from "wasm:module";

// Workers may not compile at run time, so their bundler compiles the module.

export function compile(): WebAssembly.Module {
  return module;
}

export function compileAsync(): Promise<WebAssembly.Module> {
  return Promise.resolve(module);
}
