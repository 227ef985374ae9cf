import { test as bare } from "node:test";

/**
 * Far more than any test takes. Without it, a test that hangs would fail its whole file, without its name.
 */
const LIMIT = 120_000;

/**
 * Node's `test`, with a time limit for each test. The process lives for as long as the test runs: a pending event keeps no
 * process alive, and a test may await one alone.
 */
export function test(name, ...rest) {
  const work = rest.pop();
  return bare(name, { timeout: LIMIT, ...rest[0] }, async (t) => {
    const stays = setInterval(() => {}, LIMIT);
    try {
      return await work(t);
    } finally {
      stays.close();
    }
  });
}
