import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "./redis.mjs";
import { atExit } from "./wait.mjs";

/** Starts a proxy on a free port before the server on that port, which can fail in many ways. */
export async function startProxy(target) {
  const proxy = new Proxy(target);
  await proxy.listen(await freePort());
  return proxy;
}

class Proxy {
  #target;
  #server;
  #pairs = new Set();
  #silent = false;
  #delay = 0;
  #frozen = new WeakSet();
  #forget;
  /** How many connections there ever were. */
  joined = 0;

  constructor(target) {
    this.#target = target;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** How many connections there are through it. */
  get connections() {
    return this.#pairs.size;
  }

  listen(port) {
    this.#server = net.createServer((near) => this.#join(near));
    this.#server.unref();
    this.#forget ??= atExit(() => this.#server.close());
    return new Promise((resolve, reject) => {
      this.#server.once("error", reject);
      this.#server.listen(port, "127.0.0.1", () => {
        this.port = this.#server.address().port;
        resolve();
      });
    });
  }

  /** Keeps all connections, takes new ones, and lets nothing through in either direction. */
  blackHole() {
    this.#silent = true;
  }

  /** What comes from now on arrives so many milliseconds later, in either direction. */
  slow(millis) {
    this.#delay = millis;
  }

  /** As a black hole, for the connections that there are; new ones work. */
  freeze() {
    for (const pair of this.#pairs) {
      this.#frozen.add(pair);
    }
    this.#silent = false;
  }

  /** What was swallowed is lost; connections of that time are ended, as by a router that is back. */
  heal() {
    this.#silent = false;
    this.reset();
  }

  /** Ends all connections with a FIN, or with a RST if something came that was not read; new ones are taken. */
  cut() {
    this.#each((socket) => socket.destroy());
  }

  /** Ends all connections with a FIN, and takes what still comes without passing it on; new ones are taken. */
  finish() {
    for (const pair of this.#pairs) {
      this.#frozen.add(pair);
    }
    this.#each((socket) => socket.end());
  }

  /** Ends all connections with a RST; new ones are taken. */
  reset() {
    this.#each((socket) => socket.resetAndDestroy());
  }

  /** Ends all connections and refuses new ones. */
  async refuse() {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.reset();
    await closed;
  }

  /** Takes connections again, on the same port. */
  accept() {
    return this.listen(this.port);
  }

  async close() {
    this.#forget?.();
    this.#server.close();
    this.cut();
  }

  #each(end) {
    for (const pair of this.#pairs) {
      for (const socket of pair) {
        end(socket);
      }
    }
  }

  #join(near) {
    const far = net.connect(this.#target, "127.0.0.1");
    const pair = [near, far];
    this.joined += 1;
    this.#pairs.add(pair);
    for (const [from, to] of [pair, [far, near]]) {
      let [waiting, before] = [0, Promise.resolve()];
      from.unref();
      from.setNoDelay(true);
      from.on("data", (data) => {
        if (this.#silent || this.#frozen.has(pair)) {
          return;
        }
        if (this.#delay === 0 && waiting === 0) {
          to.write(data);
          return;
        }
        // Behind what came before it, also if that was to take longer.
        waiting += 1;
        before = Promise.all([before, sleep(this.#delay)]).then(() => {
          waiting -= 1;
          if (to.writable) {
            to.write(data);
          }
        });
      });
      from.on("error", () => {});
      from.on("close", () => {
        this.#pairs.delete(pair);
        to.destroy();
      });
    }
  }
}
