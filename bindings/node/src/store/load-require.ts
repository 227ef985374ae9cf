import type { Package } from "./load.js";

/** CommonJS can run where `import()` is missing, as in Jest's or other contexts of `node:vm`. */
export async function load(name: Package): Promise<object> {
  try {
    return name === "ioredis" ? require("ioredis") : require("redis");
  } catch (cause) {
    throw new Error(`the package ${name} could not be loaded`, { cause });
  }
}
