// The client packages that a program has installed: how they are found, and the error for a missing one.
import assert from "node:assert/strict";
import { mkdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { SOURCE, installed, put, run } from "./support.mjs";

const SPEC = (url) => `
const { Locker } = require("leasehold");
test("a lock by URL", async () => {
  const locker = await Locker.connect("${url}");
  const lease = await locker.lock("jest").acquire();
  expect(lease.valid).toBe(true);
  await lease.release();
  await locker.shutdown();
});
`;

/** Prints the error of Locker.connect. */
const TELL = `
const told = async ({ Locker }) => {
  await Locker.connect("redis://me:s3cret@127.0.0.1:1").catch(({ code, message }) => console.log(code + ": " + message));
};
`;
const PROGRAMS = {
  "tell.mjs": `${TELL} await told(await import("leasehold"));\n`,
  "tell.cjs": `${TELL} told(require("leasehold"));\n`,
};

/** Adds a package of this name, with this code. */
async function add(folder, name, does) {
  const at = join(folder, "node_modules", name);
  await mkdir(at);
  await put(at, { "package.json": JSON.stringify({ name, version: "5.0.0", main: "index.js" }), "index.js": does });
}

describe("the packed package and the clients beside it", () => {
  for (const client of ["ioredis", "redis"]) {
    // Catches: an import() in the CommonJS files, which Jest's contexts do not support.
    test(`Jest in CommonJS connects through ${client}`, async (t) => {
      const server = await startRedis();
      t.after(() => server.stop());
      const { folder } = await installed();
      await symlink(join(SOURCE, "node_modules", client), join(folder, "node_modules", client));
      await put(folder, { "lock.test.js": SPEC(server.url) });
      await run("jest", ["--ci", "--watchman=false", "--cacheDirectory=.jest", "--rootDir=."], folder);
    });
  }

  for (const file of Object.keys(PROGRAMS)) {
    test(`${file}: a client that does not load is told from a missing one`, async () => {
      const { folder } = await installed();
      await put(folder, PROGRAMS);
      const told = () => run(process.execPath, [file], folder);
      const none = "config: no client for redis://127.0.0.1:1 is installed; npm install ioredis (or: npm install redis)\n";
      assert.equal(await told(), none);
      await add(folder, "ioredis", 'throw new Error("built for another machine");');
      assert.match(await told(), /^config: no client for redis:\/\/127\.0\.0\.1:1 could be loaded: ioredis: built for another machine;/);
      await add(folder, "redis", 'require("no-such-part");');
      assert.match(await told(), /could be loaded: ioredis: built for another machine;/);
      // Also a client that lacks a package that it needs itself.
      await put(join(folder, "node_modules/ioredis"), { "index.js": 'require("no-such-part");' });
      assert.match(await told(), /could be loaded: ioredis: Cannot find module 'no-such-part'/);
    });
  }
});
