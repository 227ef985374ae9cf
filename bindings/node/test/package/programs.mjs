// Programs for each runtime: they take a lock in memory and check that it excludes, and the same with a
// quorum; and they run a job.

const WORK = `
async function work({ Locker, LeaseholdError }, fence, errors = fence, cron = { cron: "* * * * * *", timeZone: "UTC" }) {
  if ([fence, errors].some((other) => other.LeaseholdError !== LeaseholdError)) throw new Error("two classes of errors");
  await excludes(await Locker.quorum(["memory://one", "memory://two", "memory://three"]));
  for (const schedule of [{ every: 10 }, cron]) await runs(Locker.inMemory(), schedule);
  return excludes(Locker.inMemory());
}
async function runs(locker, schedule) {
  const stop = new AbortController();
  const turns = [];
  const work = (turn) => turns.push(turn.scheduledFor) && stop.abort();
  await locker.job("report", schedule).run(work, { signal: stop.signal });
  if (turns.length !== 1 || !(turns[0] instanceof Date)) throw new Error("a job that does not run once");
  await locker.shutdown();
}
async function excludes(locker) {
  const [first, second] = [locker.lock("orders/42"), locker.lock("orders/42")];
  const lease = await first.acquire();
  if (!lease.valid || lease.signal.aborted) throw new Error("a lease that is over at once");
  if ((await second.tryAcquire()) !== undefined) throw new Error("two holders");
  const waiting = second.acquire({ timeout: 10_000 });
  await lease.release();
  const next = await waiting;
  if (!(next.token > lease.token)) throw new Error("a token that does not grow");
  await locker.shutdown();
  if (!next.signal.aborted) throw new Error("no loss at the shutdown");
  return "held " + lease.token + ", then " + next.token;
}
`;

/** The output of a program that got its locks. */
export const HELD = /^held \d+, then \d+\n$/;

/** A program that loads the package with `import`. */
export const MODULE = `
import * as leasehold from "leasehold";
import * as fence from "leasehold/fence";
import * as errors from "leasehold/errors";
${WORK}
console.log(await work(leasehold, fence, errors));
`;

/** A program that loads the package with `require`. */
export const COMMONJS = `
const leasehold = require("leasehold");
const fence = require("leasehold/fence");
const errors = require("leasehold/errors");
${WORK}
work(leasehold, fence, errors).then(console.log);
`;

const THREADED = `
async function main({ Locker }, url) {
  const locker = await Locker.connect(url, { thread: true });
  const lock = locker.lock("orders/42", { ttl: 1_500 });
  const lease = await lock.acquire();
  // Both threads must mean the same moment by a deadline, although their clocks may begin at different times.
  for (const end = performance.now() + 4_000; performance.now() < end; ) {
    const { remaining } = lease;
    if (!lease.valid || remaining > 1_500) throw new Error("after " + (end - performance.now()) + " ms " + remaining + " remain");
  }
  await lease.release();
  const next = await lock.acquire();
  await locker.shutdown();
  if (next.signal.reason.reason !== "shutdown" || next.valid) throw new Error("no loss at the shutdown");
  console.log("held " + lease.token + ", then " + next.token);
}
`;

/** Programs whose locker has a worker thread, which keeps the lease while the program blocks. */
export const THREAD_MODULE = `
import * as leasehold from "leasehold";
${THREADED}
await main(leasehold, process.argv.at(-1));
`;
export const THREAD_COMMONJS = `
const leasehold = require("leasehold");
${THREADED}
main(leasehold, process.argv.at(-1)).catch(({ code, message }) => console.log(code + ": " + message));
`;

/** A Jest test in a jsdom page. */
export const JEST = `
const leasehold = require("leasehold");
const slim = require("leasehold/slim");
const fence = require("leasehold/fence");
const errors = require("leasehold/errors");
${WORK}
test("takes a lock", async () => {
  expect(typeof window).toBe("object");
  expect(await work(leasehold, fence, errors)).toMatch(/^held/);
  expect(() => slim.Locker.inMemory()).toThrow("first \`await init(module)\`");
  expect(fence.writtenPath("PUT", "/account/%37")).toBe("/account/7");
});
`;

/** A program that brings the WebAssembly itself. */
export const SLIM = `
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import * as leasehold from "leasehold/slim";
import * as fence from "leasehold/fence";
${WORK}
let refused;
try {
  leasehold.Locker.inMemory();
} catch (error) {
  refused = error;
}
if (refused?.code !== "config") throw new Error("not refused without a module", { cause: refused });
const file = fileURLToPath(import.meta.resolve("leasehold/leasehold.wasm"));
await leasehold.init(await WebAssembly.compile(await readFile(file)));
console.log(await work(leasehold, fence));
`;

/** A worker for `workerd test`. */
export const WORKER = `
import * as leasehold from "leasehold";
import * as fence from "leasehold/fence";
${WORK}
export default {
  async test() {
    console.log(await work(leasehold, fence));
  },
};
`;

/** A function for a page. It returns the result of `work`. */
export const PAGE = (entry) => `(async () => {
  ${WORK}
  const leasehold = await import("${entry}");
  if ("${entry}".endsWith("/slim")) {
    await leasehold.init(await WebAssembly.compileStreaming(fetch("/dist/leasehold.wasm")));
  }
  // Without a bundler the page finds no croner, and needs none for other jobs.
  return await work(leasehold, await import("leasehold/fence"), undefined, { every: 20 }) + "\\n";
})()`;

/** A program to bundle for a page. */
export const BUNDLED_PAGE = `
import * as leasehold from "leasehold";
import * as fence from "leasehold/fence";
${WORK}
globalThis.result = leasehold.init().then(() => work(leasehold, fence)).then((held) => held + "\\n");
`;
