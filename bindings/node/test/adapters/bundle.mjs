import { pathToFileURL } from "node:url";
import { bundleParts } from "../support/bundle.mjs";

const ADAPTERS = `
  export * from "./src/adapters/index.ts";
  export * from "./src/connect.ts";
  export { parseUrl } from "./src/adapters/url.ts";
  export { LeaseholdError } from "./src/errors.ts";`;

/**
 * Bundles the adapters and returns the file; `versions` says what to import instead of a package,
 * such as { redis: "redis-v4" }.
 */
export function bundleFile(versions = {}) {
  const external = ["ioredis", "redis", ...Object.values(versions)];
  return bundleParts("adapters", ADAPTERS, { alias: versions, external });
}

export async function bundle(versions) {
  return import(pathToFileURL(await bundleFile(versions)));
}
