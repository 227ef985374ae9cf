import base64 from "wasm:base64";

/** The engine's WebAssembly. */
export { base64 };
