/** The packages that can carry a connection, the one that is preferred first. */
export type Package = "ioredis" | "redis";

// Literal names within `try`: bundlers then take a package that is missing as optional.

/** A package that the program installed. In CommonJS the build puts `load-require.ts` in this one's place. */
export async function load(name: Package): Promise<object> {
  try {
    return name === "ioredis" ? await import("ioredis") : await import("redis");
  } catch (cause) {
    throw new Error(`the package ${name} could not be loaded`, { cause });
  }
}
