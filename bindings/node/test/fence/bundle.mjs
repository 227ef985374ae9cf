import { pathToFileURL } from "node:url";
import { bundleParts } from "../support/bundle.mjs";

const FENCE = `
  export * from "./src/fence/index.ts";
  export { fenceKey, slotOf } from "./src/fence/redis/key.ts";
  export { postgres } from "./src/fence/sql/postgres.ts";
  export { mysql } from "./src/fence/sql/mysql.ts";
  export { sqlite } from "./src/fence/sql/sqlite.ts";
  export { failure } from "./src/adapters/failure.ts";
  export { partsOf } from "./src/fence/redis/script.ts";`;

/** `leasehold/fence`, and other parts that the tests need; for other processes. */
export const file = await bundleParts("fence", FENCE);

/** The guards under test. */
export const fence = await import(pathToFileURL(file));
