// Catches: types that cannot be found under a condition; that need something a program does not have, or a
// newer TypeScript than the README says; or that say less than they should. Expected errors are marked in the
// program.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe } from "node:test";
import { fileURLToPath } from "node:url";
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
import { Locker, LeaseholdError, init, type ErrorCode, type Evaluator, type Job, type Lease, type LeaseEvent, type Permit, type Ticket, type Turn } from "leasehold";
import { Locker as Slim } from "leasehold/slim";
import * as fence from "leasehold/fence";
import { LeaseholdError as Same, LeaseLostError } from "leasehold/errors";

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
  const job: Job = locker.job("report", { cron: "0 6 * * *", timeZone: "Europe/Berlin", missed: { all: 3 } });
  await job.run(async (turn, signal) => console.log(turn.scheduledFor?.getTime(), signal.aborted), { signal: lease.signal });
  for await (const turn of job.turns()) await turn.done();
  const claimed = await job.claim(7, { timeout: 0 });
  // @ts-expect-error another runner may have it
  claimed.turn;
  const turn: Turn | string = claimed.type === "turn" ? claimed.turn : claimed.type === "completed" ? claimed.completed.by : "";
  // @ts-expect-error a number of milliseconds
  locker.job("report", { every: "1m" });
  // @ts-expect-error another policy
  locker.job("report", { every: 60_000, missed: "none" });
  await using held = await lock.acquire();
  await lease.release();
  const ticket: Ticket = await held.pass();
  await using accepted = await same.accept(ticket);
  await lock.accept(String(ticket), { signal: accepted.signal }).catch(code);
  const gpus = locker.semaphore("gpus", 8, { ttl: 30_000, maxLine: 100, strict: true });
  await using permit: Permit = await gpus.acquire({ weight: 2, timeout: 3_000 });
  const alsoALease: Lease = permit;
  // @ts-expect-error a name for readers and writers, or for units, has no slots
  permit.slot.toFixed();
  // @ts-expect-error a semaphore has a capacity
  locker.semaphore("gpus");
  // @ts-expect-error permits have no such option
  locker.quota("rows", 500, { reentrant: true });
  const epoch: number = await gpus.resize(4);
  await locker.rwLock("prices", { fixed: true }).write().using(async ({ token }) => epoch + token);
  const reader = await locker.rwLock("prices").read().tryAcquire();
  const generation: number | undefined = reader?.generation;
  // @ts-expect-error a reader has no weight
  await locker.rwLock("prices").read().acquire({ weight: 2 });
  const { shared } = await locker.inspect("gpus");
  if (shared?.sharing === "slots") console.log(shared.holders.map(({ slots }) => slots.length), generation, alsoALease.token);
  await same.shutdown();
  return answer + held.token + String(turn).length;
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
    case "passed":
      return \`\${event.name} \${event.token}\`;
    case "begun":
    case "completed":
      return \`\${event.name} \${event.token} \${event.tick}\`;
    case "missed":
      return \`\${event.name} \${event.token} \${event.first} \${event.ticks}\`;
    case "wanted":
      return event.by;
    case "capacityDiffers":
      return \`\${event.capacity} \${event.wanted}\`;
    case "waiting":
      // @ts-expect-error nobody has a token who waits
      return event.token;
    case "clockDrift":
      return \`\${event.driftMargin}\`;
    case "quarantined":
      return \`\${event.server} \${event.remaining}\`;
    case "readmitted":
      return \`\${event.server}\`;
    case "lagged":
      return \`\${event.missed}\`;
    default: {
      const never: never = event;
      return never;
    }
  }
}

function code(error: unknown): ErrorCode | undefined {
  if (error instanceof LeaseLostError) return error.reason === "expired" ? "lost" : undefined;
  return error instanceof Same || error instanceof LeaseholdError ? error.code : undefined;
}

const evaluator: Evaluator = { eval: async (script, keys, args) => [script, ...keys, ...args] };
const redis = new fence.FencedRedis(evaluator);
const express = fence.fenceExpress({ resource: (req) => req.params.id });
const hono = fence.fenceHono({ resource: (c) => c.req.param("id") });
// @ts-expect-error a text or nothing
fence.fenceFastify({ resource: (request) => request.url.length });

export { main, code, redis, express, hono };
`;

/** Stubs that a program uses instead of a lock in its tests: whole objects, without casts and mocks. */
const STUBS = `
import type {
  AcquireOptions, Bundle, Claimed, Inspection, Job, Lease, LeaseEvent, LeaseEvents, Lock, Locker, LockSet, Observer,
  Permit, PermitOptions, RwLock, RwPart, Semaphore, Stats, Tenures, Ticket, Turn, Turns,
} from "leasehold";

const ticket: Ticket = {
  name: "orders/42",
  token: 34,
  ttl: 30_000,
  toString: () => "secret",
  toJSON: () => "secret",
};

const lease: Lease = {
  name: "orders/42",
  token: 34,
  waited: 0,
  began: new Date(0),
  holdCount: 1,
  remaining: 30_000,
  valid: true,
  signal: new AbortController().signal,
  run: async (work) => work(lease.signal),
  renew: async () => {},
  wanted: async () => {},
  pass: async () => ticket,
  release: async () => {},
  toJSON: () => ({ name: "orders/42", token: 34, valid: true, remaining: 30_000 }),
  [Symbol.asyncDispose]: async () => {},
};

class Events implements LeaseEvents {
  async next(): Promise<IteratorResult<LeaseEvent, undefined>> {
    return { done: true, value: undefined };
  }
  async return(): Promise<IteratorReturnResult<undefined>> {
    return { done: true, value: undefined };
  }
  toStream(): ReadableStream<LeaseEvent> {
    return new ReadableStream();
  }
  toJSON(): { name?: string } {
    return {};
  }
  [Symbol.asyncIterator](): this {
    return this;
  }
  async [Symbol.asyncDispose](): Promise<void> {}
}

const tenures: Tenures = {
  next: async () => ({ done: false, value: lease }),
  return: async () => ({ done: true, value: undefined }),
  toJSON: () => ({ name: "orders/42", ended: false }),
  [Symbol.asyncIterator]: () => tenures,
  [Symbol.asyncDispose]: async () => {},
};

const observer: Observer = {
  next: async () => ({ done: false, value: undefined }),
  return: async () => ({ done: true, value: undefined }),
  toJSON: () => ({ name: "orders/42", ended: false }),
  [Symbol.asyncIterator]: () => observer,
  [Symbol.asyncDispose]: async () => {},
};

class FakeLock implements Lock {
  readonly name = "orders/42";
  readonly held = false;
  async acquire(_options?: AcquireOptions): Promise<Lease> {
    return lease;
  }
  async tryAcquire(): Promise<Lease | undefined> {
    return undefined;
  }
  async accept(): Promise<Lease> {
    return lease;
  }
  async using<T>(work: (lease: Lease, signal: AbortSignal) => T | PromiseLike<T>): Promise<T> {
    return work(lease, lease.signal);
  }
  hold = (): Tenures => tenures;
  events = (): LeaseEvents => new Events();
  toJSON = () => ({ name: this.name });
}

const bundle: Bundle = {
  tokens: new Map([["orders/42", 34]]),
  remaining: 30_000,
  valid: true,
  signal: lease.signal,
  run: async (work) => work(lease.signal),
  renew: async () => {},
  release: async () => ["orders/42"],
  toJSON: () => ({ tokens: {}, valid: true, remaining: 30_000 }),
  [Symbol.asyncDispose]: async () => {},
};

class FakeLockSet implements LockSet {
  readonly names = ["orders/42"];
  acquire = async (): Promise<Bundle> => bundle;
  tryAcquire = async (): Promise<Bundle | undefined> => undefined;
  async using<T>(work: (bundle: Bundle, signal: AbortSignal) => T | PromiseLike<T>): Promise<T> {
    return work(bundle, bundle.signal);
  }
  toJSON = () => ({ names: this.names, atOnce: false });
}

const permit: Permit = Object.assign({}, lease, {
  slot: 1,
  slots: [1],
  resource: "licenses#1",
  capacity: 3,
  epoch: 1,
  generation: undefined,
  downgrade: async () => {},
  toJSON: () => ({ name: "licenses", resource: "licenses#1", token: 34, valid: true, remaining: 30_000 }),
});

const permits: Tenures<Permit> = {
  next: async () => ({ done: false, value: permit }),
  return: async () => ({ done: true, value: undefined }),
  toJSON: () => ({ name: "licenses", ended: false }),
  [Symbol.asyncIterator]: () => permits,
  [Symbol.asyncDispose]: async () => {},
};

class FakeSemaphore implements Semaphore {
  readonly name = "licenses";
  async acquire(_options?: PermitOptions): Promise<Permit> {
    return permit;
  }
  tryAcquire = async (): Promise<Permit | undefined> => undefined;
  async using<T>(work: (permit: Permit, signal: AbortSignal) => T | PromiseLike<T>): Promise<T> {
    return work(permit, permit.signal);
  }
  hold = (): Tenures<Permit> => permits;
  resize = async () => 2;
  events = (): LeaseEvents => new Events();
  toJSON = () => ({ name: this.name, sharing: "slots", capacity: 3 });
}

class FakePart implements RwPart {
  acquire = async (): Promise<Permit> => permit;
  tryAcquire = async (): Promise<Permit | undefined> => undefined;
  async using<T>(work: (permit: Permit, signal: AbortSignal) => T | PromiseLike<T>): Promise<T> {
    return work(permit, permit.signal);
  }
  hold = (): Tenures<Permit> => permits;
  toJSON = () => ({ name: "prices", writes: false });
}

class FakeRwLock implements RwLock {
  readonly name = "prices";
  read = (): RwPart => new FakePart();
  write = (): RwPart => new FakePart();
  events = (): LeaseEvents => new Events();
  toJSON = () => ({ name: this.name });
}

const turn: Turn = {
  name: "report",
  tick: 7,
  token: 34,
  scheduledFor: undefined,
  missed: 0,
  lease,
  done: async () => {},
  giveBack: async () => {},
  toJSON: () => ({ name: "report", tick: 7, token: 34, missed: 0, valid: true }),
  [Symbol.asyncDispose]: async () => {},
};

const turns: Turns = {
  next: async () => ({ done: false, value: turn }),
  return: async () => ({ done: true, value: undefined }),
  toJSON: () => ({ name: "report", ended: false }),
  [Symbol.asyncIterator]: () => turns,
  [Symbol.asyncDispose]: async () => {},
};

class FakeJob implements Job {
  readonly name = "report";
  async run(work: (turn: Turn, signal: AbortSignal) => unknown): Promise<void> {
    await work(turn, lease.signal);
  }
  turns = (): Turns => turns;
  claim = async (): Promise<Claimed> => ({ type: "turn", turn });
  due = async () => 7;
  toJSON = () => ({ name: this.name });
}

export function stubbed(inspection: Inspection, stats: Stats): Locker {
  return {
    findings: [],
    polls: false,
    lock: () => new FakeLock(),
    semaphore: () => new FakeSemaphore(),
    quota: () => new FakeSemaphore(),
    rwLock: () => new FakeRwLock(),
    all: () => new FakeLockSet(),
    allAtOnce: () => new FakeLockSet(),
    job: () => new FakeJob(),
    stats: () => stats,
    events: () => new Events(),
    inspect: async () => inspection,
    observe: () => observer,
    async *list() {
      yield "orders/42";
    },
    forceRelease: async () => undefined,
    forceReleaseToken: async () => undefined,
    requestYield: async () => true,
    accept: async () => lease,
    shutdown: async () => {},
    toJSON: () => ({}),
    [Symbol.asyncDispose]: async () => {},
  };
}

// @ts-expect-error it has no token
export const wrong: Lease = { ...lease, token: undefined };
`;

/** The least version that the README names, and the newest. */
const COMPILERS = { "5.6": "typescript-least", newest: "typescript-newest" };

describe("types", () => {
  let folder;
  let tarball;
  before(async () => {
    ({ folder, tarball } = await installed());
    await put(folder, { "esm.mts": PROGRAM, "cjs.cts": PROGRAM, "bundled.ts": PROGRAM, "stubs.ts": STUBS });
  });

  const check = async (compiler, file, options) => {
    const config = { compilerOptions: { ...STRICT, ...options }, files: [file] };
    await put(folder, { [`${file}.json`]: JSON.stringify(config) });
    const tsc = fileURLToPath(new URL(`node_modules/${compiler}/bin/tsc`, import.meta.url));
    return run(process.execPath, [tsc, "--project", `${file}.json`], folder);
  };

  const nodeNext = { module: "NodeNext", lib: ["ES2022", "ESNext.Disposable"], ...NODE };
  for (const [version, compiler] of Object.entries(COMPILERS)) {
    describe(`with TypeScript ${version}`, () => {
      test("the types for import, in Node", () => check(compiler, "esm.mts", nodeNext));
      test("the types for require, in Node", () => check(compiler, "cjs.cts", nodeNext));
      test("the types for a bundler, without Node", () =>
        check(compiler, "bundled.ts", { module: "ESNext", moduleResolution: "bundler", lib: ["ES2022", "DOM"] }));
      // Catches: a private member, which no other object can have.
      test("a stub of each class", () => check(compiler, "stubs.ts", nodeNext));

      // The control: a mistake fails.
      test("a mistake is an error", async () => {
        await put(folder, { "wrong.mts": 'import { Locker } from "leasehold";\nLocker.inMemory().lock(1);\n' });
        await assert.rejects(check(compiler, "wrong.mts", nodeNext), /TS2345/);
      });
    });
  }

  // The newest TypeScript does not have this resolution, which ignores `exports`.
  test("the types of each entry, with the resolution node10", () =>
    check(COMPILERS["5.6"], "bundled.ts", { ...nodeNext, module: "CommonJS", moduleResolution: "node10" }));

  test("the README names the least version", async () => {
    const readme = await readFile(join(SOURCE, "README.md"), "utf8");
    const { version } = JSON.parse(await readFile(new URL("node_modules/typescript-least/package.json", import.meta.url), "utf8"));
    assert.match(readme, /TypeScript (\d+\.\d+) or newer/);
    const [, least] = /TypeScript (\d+\.\d+) or newer/.exec(readme);
    assert.ok(version.startsWith(`${least}.`) && least in COMPILERS, version);
  });

  test("are found under every condition, as Are The Types Wrong sees it", async () => {
    // The WebAssembly has no types.
    const args = ["--profile", "strict", "--exclude-entrypoints", "leasehold.wasm", "memory.wasm", "quorum.wasm", "--no-emoji"];
    await run("attw", [tarball, ...args], folder);
  });
});
