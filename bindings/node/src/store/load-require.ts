import type { Package } from "./load.js";

/**
 * Loads a package that the program installed. CommonJS also runs where `import()` is missing, as in Jest or
 * other `node:vm` contexts.
 */
export async function load(name: Package): Promise<object> {
  try {
    return name === "ioredis" ? require("ioredis") : require("redis");
  } catch (cause) {
    throw new Error(`the package ${name} could not be loaded`, { cause });
  }
}
