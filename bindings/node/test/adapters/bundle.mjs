import { fileURLToPath, pathToFileURL } from "node:url";
import { bundleParts } from "../support/bundle.mjs";

const ADAPTERS = `
  export * from "./src/adapters/index.ts";
  export * from "./src/store/connect.ts";
  export { parseUrl } from "./src/adapters/url.ts";
  export { memoryName } from "./src/store/memory-url.ts";
  export { LeaseholdError } from "./src/common/errors.ts";
  export { Locker } from "./src/api/locker.ts";`;

/** The engine explains a server's answers. The build replaces these names by the modules, too. */
const wasm = {
  name: "wasm",
  setup({ onResolve }) {
    const generated = (file) => fileURLToPath(new URL(`../../src/generated/${file}`, import.meta.url));
    onResolve({ filter: /^wasm:base64$/ }, () => ({ path: generated("leasehold.wasm") }));
    onResolve({ filter: /^wasm:memory-base64$/ }, () => ({ path: generated("memory.wasm") }));
    onResolve({ filter: /^wasm:quorum-base64$/ }, () => ({ path: generated("quorum.wasm") }));
    // No adapter needs the code of worker threads, which only the build has.
    const nowhere = fileURLToPath(new URL("../../src/thread/open-nowhere.ts", import.meta.url));
    onResolve({ filter: /\/thread\/open\.js$/ }, () => ({ path: nowhere }));
  },
};

/**
 * Bundles the adapters and returns the file. `versions` maps a package to the one to import instead, such as
 * { redis: "redis-v4" }.
 */
export function bundleFile(versions = {}) {
  const external = ["node:*", "ioredis", "redis", ...Object.values(versions)];
  const plugins = [wasm];
  return bundleParts("adapters", ADAPTERS, { alias: versions, external, plugins });
}

export async function bundle(versions) {
  return import(pathToFileURL(await bundleFile(versions)));
}
