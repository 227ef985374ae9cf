// The cost of a locker in WebAssembly memory, and how deep the engine uses its small stack.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "../support/test.mjs";

/** The size that xtask/src/package.rs sets. */
const STACK = 64 * 1024;
const PAGE = 64 * 1024;

const memories = spied();
const { init, Locker, LeaseholdError } = await import("../../dist/index.js");

/** A client that is never asked for anything. */
const client = { eval: () => Promise.reject(new Error("there is no server")) };

const bytes = () => memories.reduce((sum, { memory }) => sum + (memory.deref()?.buffer.byteLength ?? 0), 0);

test("a thousand lockers share what a few need", () => {
  // Catches: an instance for each locker, with its own stack and heap: it was 1.1 MiB once.
  const lockers = [Locker.from(client)];
  const before = bytes();
  for (let i = 0; i < 1_000; i++) {
    lockers.push(Locker.from(client));
  }
  const each = (bytes() - before) / 1_000;
  assert.ok(each < 8 * 1_024, `${each} bytes each`);
  // The control: something was measured.
  assert.ok(before >= PAGE && lockers.length === 1_001);
});

test("the engine uses a small part of its stack", async () => {
  // Catches: a change that takes the stack near its end.
  const before = memories.length;
  const locker = Locker.inMemory();
  const all = locker.events();
  const names = Array.from({ length: 20 }, (_, i) => `${i}`.padEnd(250, "ö"));
  await Promise.all(
    Array.from({ length: 1_000 }, async (_, i) => {
      const lock = locker.lock(names[i % names.length], { owner: `owner ${i}`, denseTokens: i % 2 === 0 });
      const lease = await lock.acquire();
      await lease.renew();
      await lease.release();
    }),
  );
  for await (const name of locker.list("*ö*ö*ö*ö*ö*")) {
    await locker.inspect(name);
  }
  assert.equal((await all.next()).value.type, "lagged");
  await assert.rejects(async () => locker.lock("ö".repeat(300)).acquire(), { code: "config" });
  await locker.shutdown();
  for (const { memory } of memories.slice(before)) {
    const stack = new Uint8Array(memory.deref().buffer, 0, STACK);
    const depth = STACK - stack.findIndex((byte) => byte !== 0);
    assert.ok(depth > 0 && depth < STACK / 4, `${depth} bytes`);
  }
});

test("a stack that is too deep traps, because all other data is above it", async () => {
  // Catches: an overflow that silently overwrites the engine's data.
  await init(await WebAssembly.compile(withStackPointer(readFileSync(new URL("../../src/generated/leasehold.wasm", import.meta.url)))));
  const locker = Locker.inMemory();
  const lease = await locker.lock("x").acquire();
  const { pointer } = memories.findLast((made) => made.pointer !== undefined);
  assert.equal(pointer.value, STACK);
  pointer.value = 64;
  const failed = await locker.inspect("x").catch((error) => error);
  assert.ok(failed instanceof LeaseholdError && failed.code === "internal", String(failed));
  assert.ok(failed.cause instanceof WebAssembly.RuntimeError);
  assert.match(failed.cause.message, /out of bounds/);
  assert.equal(lease.signal.reason.reason, "crashed");
});

/** Records the memory of each new instance, and the stack pointer if it is exported. */
function spied() {
  const made = [];
  const { Instance } = WebAssembly;
  WebAssembly.Instance = function (module, imports) {
    const instance = new Instance(module, imports);
    const { memory, pointer } = instance.exports;
    made.push({ memory: new WeakRef(memory), pointer });
    return instance;
  };
  return made;
}

/** Returns the module with its first global exported, which is the stack pointer. */
function withStackPointer(module) {
  const EXPORTS = 7;
  const GLOBAL = 3;
  for (let at = 8; at < module.length; ) {
    const [length, begin] = number(module, at + 1);
    if (module[at] === EXPORTS) {
      const [count, first] = number(module, begin);
      const name = Buffer.from("pointer");
      const section = Buffer.concat([
        bytesOf(count + 1),
        module.subarray(first, begin + length),
        bytesOf(name.length),
        name,
        Buffer.from([GLOBAL, 0]),
      ]);
      const parts = [module.subarray(0, at + 1), bytesOf(section.length), section, module.subarray(begin + length)];
      return Buffer.concat(parts);
    }
    at = begin + length;
  }
  throw new Error("the module has no exports");
}

/** Reads a number of the binary format, and where it ends. */
function number(bytes, at) {
  let value = 0;
  for (let shift = 0; ; shift += 7, at++) {
    value |= (bytes[at] & 0x7f) << shift;
    if (bytes[at] < 0x80) {
      return [value, at + 1];
    }
  }
}

function bytesOf(value) {
  return Buffer.from(value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...bytesOf(value >> 7)]);
}
