import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Resp } from "./resp.mjs";
import { atExit, waitFor } from "./wait.mjs";

/**
 * Starts a redis-server, or the program in LEASEHOLD_REDIS_SERVER, on a free loopback port, in a new folder.
 * `config` has lines such as "maxclients 10". The server is killed at the end of the process at the latest.
 */
export async function startRedis(options = {}) {
  for (let tries = 0; ; tries++) {
    const server = new RedisServer(await freePort(), options);
    try {
      await server.start();
      return server;
    } catch (error) {
      server.remove();
      // Another process may have taken the port in the meantime.
      if (tries === 4 || !/in use/i.test(error.message)) {
        throw error;
      }
    }
  }
}

/** Starts a cluster of three masters, each with a third of the slots. */
export async function startCluster({ config = [] } = {}) {
  const bus = () => freePort();
  const servers = [];
  for (let i = 0; i < 3; i++) {
    const port = await bus();
    const own = ["cluster-enabled yes", `cluster-port ${port}`, "cluster-node-timeout 15000"];
    servers.push(Object.assign(await startRedis({ config: [...own, ...config] }), { bus: port }));
  }
  const bounds = [0, 5461, 10923, 16384];
  for (const [at, server] of servers.entries()) {
    await server.command("CLUSTER", "ADDSLOTSRANGE", bounds[at], bounds[at + 1] - 1);
    await servers[0].command("CLUSTER", "MEET", "127.0.0.1", server.port, server.bus);
  }
  const ready = async (server) => {
    const info = await server.command("CLUSTER", "INFO");
    return /cluster_state:ok/.test(info) && /cluster_known_nodes:3/.test(info);
  };
  await waitFor(async () => (await Promise.all(servers.map(ready))).every(Boolean), 30_000, "the cluster is up");
  return {
    servers,
    url: `redis-cluster://127.0.0.1:${servers[0].port}`,
    nodes: servers.map(({ port }) => ({ host: "127.0.0.1", port })),
    /** The first slot of each node, and one more than the last slot. */
    bounds,
    /** Moves a slot with its keys from one node to another. */
    async move(slot, from, to) {
      const [source, target] = [servers[from], servers[to]];
      const [sourceId, targetId] = [await source.command("CLUSTER", "MYID"), await target.command("CLUSTER", "MYID")];
      await target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", sourceId);
      await source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", targetId);
      for (;;) {
        const keys = await source.command("CLUSTER", "GETKEYSINSLOT", slot, 100);
        if (keys.length === 0) {
          break;
        }
        await source.command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", ...keys);
      }
      // The new owner comes first, so that no node reports the slot as unassigned.
      for (const server of [target, source, servers[3 - from - to]]) {
        await server.command("CLUSTER", "SETSLOT", slot, "NODE", targetId);
      }
    },
    stop: () => Promise.all(servers.map((server) => server.stop())),
  };
}

/** Starts a primary, a replica, and a sentinel that watches them as `mymaster`. */
export async function startSentinel() {
  const primary = await startRedis();
  const replica = await startRedis({ config: [`replicaof 127.0.0.1 ${primary.port}`, "repl-diskless-sync-delay 0"] });
  await waitFor(async () => /master_link_status:up/.test(await replica.info("replication")), 30_000, "the replica is in sync");
  const sentinel = await startRedis({
    sentinel: true,
    config: [
      `sentinel monitor mymaster 127.0.0.1 ${primary.port} 1`,
      // Until the primary is lost on purpose, because a machine that stalls is no reason for a failover.
      "sentinel down-after-milliseconds mymaster 60000",
      "sentinel failover-timeout mymaster 3000",
    ],
  });
  const knows = async () => (await sentinel.command("SENTINEL", "REPLICAS", "mymaster")).length === 1;
  await waitFor(knows, 30_000, "the sentinel knows the replica");
  const servers = [sentinel, replica, primary];
  return {
    primary,
    replica,
    sentinel,
    url: `redis-sentinel://127.0.0.1:${sentinel.port}?sentinelServiceName=mymaster`,
    /** Kills the primary, and waits until the replica leads. */
    async failover() {
      await sentinel.command("SENTINEL", "SET", "mymaster", "down-after-milliseconds", 500);
      await primary.kill();
      const leads = async () => /role:master/.test(await replica.info("replication"));
      await waitFor(leads, 30_000, "the replica leads");
    },
    stop: () => Promise.all(servers.map((server) => server.stop())),
  };
}

class RedisServer {
  #options;
  #dir = mkdtempSync(join(tmpdir(), "leasehold-redis-"));
  #child;
  #forget;
  #asked;

  constructor(port, options) {
    this.port = port;
    this.#options = options;
    this.socket = join(this.#dir, "socket");
  }

  get pid() {
    return this.#child?.pid;
  }

  get url() {
    const { password } = this.#options;
    const user = password ? `:${encodeURIComponent(password)}@` : "";
    return `redis://${user}127.0.0.1:${this.port}`;
  }

  /**
   * Starts it, on the same port and with the same configuration as before. Data is kept if it is
   * `persistent`.
   */
  async start() {
    const { sentinel = false, config = [], password, persistent = false } = this.#options;
    const file = join(this.#dir, "redis.conf");
    const lines = ["bind 127.0.0.1", `port ${this.port}`, `dir ${this.#dir}`, ...config];
    if (!sentinel) {
      lines.push('save ""', `appendonly ${persistent ? "yes" : "no"}`, "appendfsync always", `unixsocket ${this.socket}`);
    }
    if (password) {
      lines.push(`requirepass ${password}`, `masterauth ${password}`);
    }
    writeFileSync(file, `${lines.join("\n")}\n`);
    const program = process.env.LEASEHOLD_REDIS_SERVER ?? "redis-server";
    const child = spawn(program, [file, ...(sentinel ? ["--sentinel"] : [])]);
    this.#child = child;
    this.#forget ??= atExit(() => this.remove());
    child.unref();
    let log = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.unref();
      stream.on("data", (data) => {
        log += data;
      });
    }
    child.on("error", (error) => {
      log += error.message;
    });
    const answers = async () => {
      if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) {
        throw new Error(`redis-server did not start: ${log.slice(-500)}`);
      }
      try {
        await this.command("PING");
        // Another program's server may have taken the port.
        return (await this.info("server")).includes(`config_file:${file}\r\n`);
      } catch {
        return false;
      }
    };
    await waitFor(answers, 20_000, "redis-server answers");
  }

  /** Runs a command on the tests' own connection, which is made again if it was closed. */
  async command(...args) {
    for (let tries = 0; ; tries++) {
      this.#asked ??= Resp.connect(this.port, this.#options);
      try {
        return await (await this.#asked).command(...args);
      } catch (error) {
        if (!/closed|ECONN/.test(error.message)) {
          throw error;
        }
        this.#asked = undefined;
        if (tries === 1) {
          throw error;
        }
      }
    }
  }

  info(section = "everything") {
    return this.command("INFO", section);
  }

  /** Returns how often each command was called, by its name in lower case. */
  async commandStats() {
    const stats = (await this.info("commandstats")).matchAll(/cmdstat_([^:]+):calls=(\d+)/g);
    return Object.fromEntries([...stats].map(([, name, calls]) => [name, Number(calls)]));
  }

  /** Returns all connections except the tests' own, as objects with the fields of CLIENT LIST. */
  async clients() {
    const own = await this.command("CLIENT", "ID");
    const lines = (await this.command("CLIENT", "LIST")).trim().split("\n");
    return lines
      .map((line) => Object.fromEntries(line.split(" ").map((field) => field.split(/=(.*)/s))))
      .filter(({ id }) => Number(id) !== own);
  }

  /** Sends SIGSTOP: the server keeps its connections and answers nothing. */
  pause() {
    this.#child.kill("SIGSTOP");
  }

  resume() {
    this.#child.kill("SIGCONT");
  }

  /** Sends SIGKILL, and waits until the server is gone. */
  async kill() {
    const child = this.#child;
    if (child && child.exitCode === null && child.signalCode === null) {
      const gone = new Promise((resolve) => child.once("exit", resolve));
      child.ref();
      child.kill("SIGKILL");
      await gone;
    }
    (await this.#asked?.catch(() => undefined))?.close();
    this.#asked = undefined;
  }

  async restart() {
    await this.kill();
    await this.start();
  }

  /** Kills it and removes its folder. */
  async stop() {
    await this.kill();
    this.#forget?.();
    this.remove();
  }

  /** Kills it and removes its folder synchronously, for the end of the process. */
  remove() {
    this.#child?.kill("SIGKILL");
    rmSync(this.#dir, { recursive: true, force: true, maxRetries: 3 });
  }
}

/**
 * Returns a port that is free now. It is below the ports that the system gives to connections: one of those
 * might take it while a server is down, and a client may even connect to itself.
 */
export async function freePort() {
  for (let tries = 0; tries < 100; tries++) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    if (await isFree(port)) {
      return port;
    }
  }
  throw new Error("no port is free");
}

function isFree(port) {
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
