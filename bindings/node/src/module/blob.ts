import base64 from "wasm:base64";

/** The engine's WebAssembly in base64. */
export { base64 };
