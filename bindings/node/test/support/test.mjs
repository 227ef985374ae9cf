import { test as bare } from "node:test";

/** Far more than any test takes. Without it one that hangs takes its whole file with it, and has no name. */
const LIMIT = 120_000;

/** As that of Node, with a limit for each test. */
export function test(name, ...rest) {
  const work = rest.pop();
  return bare(name, { timeout: LIMIT, ...rest[0] }, work);
}
