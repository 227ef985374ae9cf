// Rust, Node and the command on one store: they exclude each other, and hand over to each other in order.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { FencedRedis } from "../../dist/fence.js";
import { Locker } from "../../dist/index.js";
import { startNode, startProgram } from "../support/program.mjs";
import { startRedis } from "../support/redis.mjs";
import { aborted, clients, heard, lockerOf } from "../support/stores.mjs";
import { test } from "../support/test.mjs";
import { awake, waitFor } from "../support/wait.mjs";

const bins = process.env.LEASEHOLD_BIN_DIR ?? fileURLToPath(new URL("../../../../target/debug", import.meta.url));
const visitor = fileURLToPath(new URL("visitor.mjs", import.meta.url));

function built(name, crate) {
  const path = join(bins, name);
  assert.ok(existsSync(path), `${path} is missing; make it with: cargo build -p ${crate} --bins`);
  return path;
}

/** Starts a program of the crate leasehold-tests. */
function rust(name, ...args) {
  return startProgram(built(name, "leasehold-tests"), args.map(String));
}

/** A script that visits as `visitor.mjs` does, each time by `leasehold run`. */
function script(url, name, file, rounds) {
  const visit =
    'if (set -C; : > "$FILE") 2>&-; then entered=yes; else echo overlap; fi; sleep 0.002; ' +
    'echo $LEASEHOLD_TOKEN >> "$FILE.tokens"; if [ "$entered" ]; then rm "$FILE"; fi';
  const leasehold = built("leasehold", "leasehold-cli");
  const env = { ...process.env, LEASEHOLD_URL: url, LEASEHOLD: leasehold, FILE: file, VISIT: visit };
  const loop = `for i in $(seq ${rounds}); do "$LEASEHOLD" run "$1" -- sh -c "$VISIT" || exit; done; echo done`;
  return startProgram("sh", ["-c", loop, "sh", name], { env });
}

/** Starts a Rust process with several waiters, and reads what it prints of them. */
async function waiters(t, server) {
  const program = rust("waiters", server.url, 2);
  t.after(() => program.kill());
  await program.says("ready");
  let asked = 0;
  return {
    ...program,
    ask(label, name, ttl, then) {
      asked += 1;
      program.write(`ask ${label} ${name} ${ttl} ${then}`);
    },
    /** Resolves to the token of the grant to this label. */
    async granted(label, limit = 10_000) {
      const find = () => program.lines.find((line) => line.startsWith(`granted ${label} `));
      const line = await waitFor(find, limit, () => `a grant to ${label} of ${asked}: ${program.output()}`);
      return Number(line.split(" ")[2]);
    },
  };
}

describe("a mixed fleet", { concurrency: 2 }, () => {
  let server;
  let folder;
  before(async () => {
    server = await startRedis();
    folder = mkdtempSync(join(tmpdir(), "leasehold-mixed-"));
  });
  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** Two processes of each language go in and out. Returns how often two were inside. */
  async function overlaps(url, rounds, disturb) {
    const args = [url, "lock", join(folder, "lock"), rounds, "lock"];
    const programs = [
      ...[1, 2].map(() => rust("holder", "visit", ...args)),
      ...[1, 2].map(() => startNode(visitor, ...args)),
    ];
    await Promise.all([...programs.map((program) => program.says("done", 90_000)), disturb()]);
    return programs.flatMap(({ lines }) => lines.filter((line) => line === "overlap")).length;
  }

  test("processes of Rust, of Node and commands contend for one name, and get it in turn", async () => {
    // Catches: a lock that one of the three takes for another's, and a token of one that is lower than the
    // last.
    const file = join(folder, "all three");
    const args = [server.url, "all three", file];
    const rounds = { rust: 40, node: 40, commands: 15 };
    const programs = [1, 2].flatMap(() => [
      rust("holder", "visit", ...args, rounds.rust, "lock"),
      startNode(visitor, ...args, rounds.node, "lock"),
      script(...args, rounds.commands),
    ]);
    await Promise.all(programs.map((program) => program.says("done", 90_000)));
    assert.deepEqual(programs.flatMap(({ lines }) => lines.filter((line) => line === "overlap")), []);
    const tokens = readFileSync(`${file}.tokens`, "utf8").trim().split("\n").map(Number);
    assert.equal(tokens.length, 2 * (rounds.rust + rounds.node + rounds.commands), "each has had all its turns");
    const falls = tokens.filter((token, at) => at > 0 && !(token > tokens[at - 1]));
    assert.deepEqual(falls, [], "tokens grow");
  });

  test("two processes of each contend for one name at the same five servers, of which two go down", async (t) => {
    const servers = await Promise.all(Array.from({ length: 5 }, () => startRedis()));
    t.after(() => Promise.all(servers.map((one) => one.stop())));
    const url = servers.map((one) => one.url).join(" ");
    const fail = async () => {
      const began = async () => ((await servers[4].commandStats()).evalsha ?? 0) > 100;
      await waitFor(began, 30_000, "they are at it");
      await servers[0].kill();
      await servers[3].kill();
    };
    assert.equal(await overlaps(url, 12, fail), 0, "two were inside");
    const locker = await Locker.quorum(url.split(" "));
    assert.equal((await locker.inspect("lock")).holder, null, "nothing is left");
    await locker.shutdown();
  });

  for (const kind of clients) {
    /**
     * Starts a new server, because `heard` would take another test's subscription for the one that it waits
     * for.
     */
    async function started(t) {
      const own = await startRedis();
      t.after(() => own.stop());
      return own;
    }

    /** Makes a Node locker on this kind of client, which hears its pushes. */
    async function node(t, own) {
      const { locker, end } = await lockerOf(kind, own.url);
      t.after(async () => {
        await locker.shutdown();
        await end();
      });
      await heard(own, () => locker.lock(`warm ${Math.random()}`).using(() => {}));
      return locker;
    }
    const inLine = (locker, name, count) =>
      waitFor(async () => (await locker.inspect(name)).waiting === count, 10_000, `${count} in line`);

    test(`${kind}: sixteen in turn of Rust and of Node are served in the order of asking`, async (t) => {
      const name = `order-${kind}`;
      const own = await started(t);
      const [locker, fleet] = [await node(t, own), await waiters(t, own)];
      const holder = await locker.lock(name).acquire();
      const tokens = [];
      for (let i = 0; i < 16; i++) {
        if (i % 2 === 0) {
          fleet.ask(`w${i}`, name, 30_000, "pass");
          tokens.push(() => fleet.granted(`w${i}`));
        } else {
          const got = locker.lock(name, { owner: `w${i}` }).acquire().then(async (lease) => {
            await lease.release();
            return lease.token;
          });
          tokens.push(() => got);
        }
        await inLine(locker, name, i + 1);
      }
      const { line } = await locker.inspect(name);
      assert.deepEqual(line.map(({ owner }) => owner.label), Array.from({ length: 16 }, (_, i) => `w${i}`));
      assert.ok(line.every(({ owner }) => owner.reclaimable));
      const begin = awake();
      await holder.release();
      const order = await Promise.all(tokens.map((token) => token()));
      const took = awake() - begin;
      for (const [i, token] of [holder.token, ...order].entries()) {
        assert.ok(i === 0 || token > [holder.token, ...order][i - 1], `${i}: ${order}`);
      }
      assert.ok(took < 5_000, `by pushes: ${took} ms`);
      await waitFor(async () => (await locker.inspect(name)).holder === null);
    });

    test(`${kind}: an owner that restarts in the other language takes over at once`, async (t) => {
      const name = `owner-${kind}`;
      const own = await started(t);
      const [locker, fleet, other] = [await node(t, own), await waiters(t, own), await waiters(t, own)];
      const first = await heard(own, () => {
        fleet.ask("job-7", name, 30_000, "hold");
        return fleet.granted("job-7");
      });
      const begin = awake();
      const lease = await locker.lock(name, { owner: "job-7" }).acquire();
      assert.ok(lease.token > first);
      await fleet.says("lost job-7");
      const lost = aborted(lease.signal);
      other.ask("job-7", name, 30_000, "pass");
      assert.ok((await other.granted("job-7")) > lease.token);
      assert.equal((await lost).reason, "superseded");
      assert.ok(awake() - begin < 8_000, "and not at the next renewal");
    });

    test(`${kind}: each frees the other's lock by force, and the holder learns so`, async (t) => {
      const name = `force-${kind}`;
      const own = await started(t);
      const [locker, fleet] = [await node(t, own), await waiters(t, own)];
      const token = await heard(own, () => {
        fleet.ask("stuck", name, 30_000, "hold");
        return fleet.granted("stuck");
      });
      const seen = (await locker.inspect(name)).holder;
      assert.deepEqual([seen.token, seen.owner], [token, { label: "stuck", reclaimable: true }]);
      assert.equal((await locker.forceRelease(name)).token, token);
      // Before its next renewal after 10 s.
      const said = await fleet.says("lost stuck", 7_000);
      assert.match(said, /forc|revok/i);

      const lease = await locker.lock(name).acquire();
      const lost = aborted(lease.signal);
      const begin = awake();
      fleet.write(`free ${name}`);
      assert.equal(Number(await fleet.says("freed")), lease.token);
      assert.equal((await lost).reason, "revoked");
      assert.ok(awake() - begin < 5_000, "at the push");
      assert.ok(lease.token > token);
    });

    test(`${kind}: a Rust holder that is paused is fenced off`, async (t) => {
      const name = `paused-${kind}`;
      const own = await started(t);
      const { locker, client, end } = await lockerOf(kind, own.url);
      t.after(async () => {
        await locker.shutdown();
        await end();
      });
      const holder = rust("holder", "hold", own.url, name, 3_000);
      t.after(() => holder.kill());
      const paused = Number(await holder.says("held"));
      const waiting = locker.lock(name).acquire();
      await inLine(locker, name, 1);
      holder.kill("SIGSTOP");
      const lease = await waiting;
      assert.ok(lease.token > paused);
      const fenced = new FencedRedis(client);
      await fenced.resource(name, lease).set(name, "Node was here");
      await assert.rejects(fenced.resource(name, paused).set(name, "too late"), { code: "staleToken" });
      holder.kill("SIGCONT");
      await holder.says("lost");
      await lease.release();
    });
  }
});
