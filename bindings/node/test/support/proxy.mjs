import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { freePort } from "./redis.mjs";
import { atExit } from "./wait.mjs";

/** Starts a proxy on a free port, in front of the server on the target port. It can fail in many ways. */
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
  /** The number of connections so far. */
  joined = 0;

  constructor(target) {
    this.#target = target;
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** The number of open connections. */
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

  /** Keeps all connections and accepts new ones, but passes nothing in either direction. */
  blackHole() {
    this.#silent = true;
  }

  /** Delays everything by this many milliseconds from now on, in either direction. */
  slow(millis) {
    this.#delay = millis;
  }

  /** Passes nothing on existing connections; new ones work. */
  freeze() {
    for (const pair of this.#pairs) {
      this.#frozen.add(pair);
    }
    this.#silent = false;
  }

  /**
   * Ends the black hole. Swallowed data is lost, and the connections of that time are closed, as by a router
   * that is back.
   */
  heal() {
    this.#silent = false;
    this.reset();
  }

  /** Closes all connections with a FIN, or with an RST if data was not read. It accepts new ones. */
  cut() {
    this.#each((socket) => socket.destroy());
  }

  /** Closes all connections with a FIN, and swallows data that still arrives. It accepts new ones. */
  finish() {
    for (const pair of this.#pairs) {
      this.#frozen.add(pair);
    }
    this.#each((socket) => socket.end());
  }

  /** Closes all connections with an RST. It accepts new ones. */
  reset() {
    this.#each((socket) => socket.resetAndDestroy());
  }

  /** Closes all connections and refuses new ones. */
  async refuse() {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.reset();
    await closed;
  }

  /** Accepts connections again, on the same port. */
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
        // After everything that arrived before, even if that was to take longer.
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
