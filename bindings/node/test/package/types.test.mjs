// Catches: types that cannot be found under a condition, that need what a program has not got, or
// that say less than they should. Errors that must be there are marked in the program.
import assert from "node:assert/strict";
import { join } from "node:path";
import { before, describe } from "node:test";
import { test } from "../support/test.mjs";
import { SOURCE, installed, put, run } from "./support.mjs";

const STRICT = {
  noEmit: true,
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  noImplicitReturns: true,
  skipLibCheck: false,
  target: "ES2022",
  types: [],
};
const NODE = { typeRoots: [join(SOURCE, "node_modules/@types")], types: ["node"] };

const PROGRAM = `
import { Locker, LeaseholdError, init, type ErrorCode, type Lease, type LeaseEvent } from "leasehold";
import { Locker as Slim } from "leasehold/slim";
import * as fence from "leasehold/fence";

async function main(): Promise<number> {
  await init();
  const locker: Locker = Locker.inMemory();
  const same: Locker = Slim.inMemory();
  const lock = locker.lock("orders/42", { ttl: 30_000 });
  const lease: Lease = await lock.acquire({ timeout: 3_000, signal: new AbortController().signal });
  const perhaps: Lease | undefined = await lock.tryAcquire();
  // @ts-expect-error it may be undefined
  perhaps.token;
  // @ts-expect-error a number of milliseconds
  await lock.acquire({ timeout: "3s" });
  // @ts-expect-error made by connect, from or inMemory
  new Locker();
  const answer: number = await lock.using(async (lease, signal) => (signal.aborted ? 0 : lease.token));
  for await (const event of lock.events()) told(event);
  await using held = await lock.acquire();
  await lease.release();
  await same.shutdown();
  return answer + held.token;
}

function told(event: LeaseEvent): string {
  switch (event.type) {
    case "acquired":
    case "renewed":
    case "atRisk":
      return \`\${event.name} \${event.token} \${event.remaining}\`;
    case "lost":
      return \`\${event.name} \${event.token} \${event.reason}\`;
    case "released":
      return \`\${event.name} \${event.token}\`;
    case "waiting":
      // @ts-expect-error nobody has a token who waits
      return event.token;
    case "lagged":
      return \`\${event.missed}\`;
    default: {
      const never: never = event;
      return never;
    }
  }
}

function code(error: unknown): ErrorCode | undefined {
  return error instanceof LeaseholdError ? error.code : undefined;
}

export { main, code, fence };
`;

describe("types", () => {
  let folder;
  let tarball;
  before(async () => {
    ({ folder, tarball } = await installed());
    await put(folder, { "esm.mts": PROGRAM, "cjs.cts": PROGRAM, "bundled.ts": PROGRAM });
  });

  const check = async (file, options) => {
    const config = { compilerOptions: { ...STRICT, ...options }, files: [file] };
    await put(folder, { [`${file}.json`]: JSON.stringify(config) });
    return run("tsc", ["--project", `${file}.json`], folder);
  };

  const nodeNext = { module: "NodeNext", lib: ["ES2022", "ESNext.Disposable"], ...NODE };
  test("of import, in Node", () => check("esm.mts", nodeNext));
  test("of require, in Node", () => check("cjs.cts", nodeNext));
  test("for a bundler, without Node", () =>
    check("bundled.ts", { module: "ESNext", moduleResolution: "bundler", lib: ["ES2022", "DOM"] }));

  // Control: that a mistake fails.
  test("a mistake is an error", async () => {
    await put(folder, { "wrong.mts": 'import { Locker } from "leasehold";\nLocker.inMemory().lock(1);\n' });
    await assert.rejects(check("wrong.mts", nodeNext), /TS2345/);
  });

  test("are found under every condition, as Are The Types Wrong sees it", async () => {
    // node10 knows no exports; the blob has no types.
    const args = ["--profile", "node16", "--exclude-entrypoints", "leasehold.wasm", "--no-emoji"];
    await run("attw", [tarball, ...args], folder);
  });
});
