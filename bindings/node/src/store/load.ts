/** The client packages, the preferred one first. */
export type Package = "ioredis" | "redis";

// Literal names within `try`, so that bundlers take a missing package as optional.

/**
 * Loads a package that the program installed. In CommonJS the build replaces this file by `load-require.ts`.
 */
export async function load(name: Package): Promise<object> {
  try {
    return name === "ioredis" ? await import("ioredis") : await import("redis");
  } catch (cause) {
    throw new Error(`the package ${name} could not be loaded`, { cause });
  }
}
