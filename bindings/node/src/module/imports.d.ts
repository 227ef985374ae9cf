// Imports that the build resolves.

/** The WebAssembly of the engine, the quorum engine or the in-memory store, in base64. */
declare module "wasm:*base64" {
  const base64: string;
  export default base64;
}

/** The WebAssembly of the engine, the quorum engine or the in-memory store, compiled by a bundler. */
declare module "wasm:*module" {
  const module: WebAssembly.Module;
  export default module;
}

/** The version in package.json. */
declare const PACKAGE_VERSION: string;

declare module "*.lua" {
  const text: string;
  export default text;
}

declare module "*.txt" {
  const text: string;
  export default text;
}

declare module "*.sql" {
  const text: string;
  export default text;
}

/** Limits and defaults, shared with Rust. Times are in milliseconds. */
declare module "*/limits.jsonc" {
  export const nameBytes: number;
  export const connectTimeout: number;
  export const commandTimeout: number;
  export const patience: number;
  export const driftMargin: number;
  export const tokenRetention: number;
  export const longestTtl: number;
  export const timeToLive: number;
  export const bundleNames: number;
  export const shortestPeriod: number;
  export const longestPeriod: number;
  export const missedTicks: number;
  export const comparedTicks: number;
  export const longestSleep: number;
  export const longestSpread: number;
  export const storePause: number;
  export const observePeriod: number;
  export const shownCharacters: number;
  export const gateCapacity: number;
  export const gateWaiting: number;
  export const guardTimeout: number;
  export const longestGuardTimeout: number;
  export const raceLimit: number;
  export const firstRacePause: number;
  export const longestRacePause: number;
}

/**
 * Declares only what is used: Node's types have no WebAssembly, and those of browsers declare too much else.
 */
declare namespace WebAssembly {
  interface Module {
    readonly [Symbol.toStringTag]: string;
  }
  const Module: {
    prototype: Module;
    new (bytes: Uint8Array<ArrayBuffer>): Module;
    exports(module: Module): { readonly name: string }[];
  };
  function compile(bytes: Uint8Array<ArrayBuffer>): Promise<Module>;
}
