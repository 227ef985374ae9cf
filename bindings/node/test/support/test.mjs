import { test as bare } from "node:test";

/**
 * Far more than any test takes. Without it, a test that hangs would fail its whole file, without its name.
 */
const LIMIT = 120_000;

/** Node's `test`, with a time limit for each test. */
export function test(name, ...rest) {
  const work = rest.pop();
  return bare(name, { timeout: LIMIT, ...rest[0] }, work);
}
