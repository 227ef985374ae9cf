// A shop with one article: in this process, or in Redis. A guard checks the tokens of its writes.
import Redis from "ioredis";
import { FencedRedis, Gate } from "leasehold/fence";

export const STOCK = 5;

export class MemoryShop {
  #stock = STOCK;
  #gate = new Gate();

  async open() {}

  async read() {
    return this.#stock;
  }

  async write(stock) {
    this.#stock = stock;
  }

  async writeGuarded(stock, lease) {
    await this.#gate.guard("article", lease, () => this.write(stock));
  }

  async shutdown() {}
}

export class RedisShop {
  #redis;
  #key;

  constructor(url, name) {
    this.name = name;
    this.#redis = new Redis(url);
    // Without a listener each error would be printed. A command that fails throws its own.
    this.#redis.on("error", () => {});
    this.#key = `{${name}}:stock`;
  }

  async open() {
    await this.write(STOCK);
  }

  async read() {
    return Number(await this.#redis.get(this.#key));
  }

  async write(stock) {
    await this.#redis.set(this.#key, stock, "EX", 60);
  }

  /** The check and the write are one script. */
  async writeGuarded(stock, lease) {
    const guarded = new FencedRedis(this.#redis).resource(`{${this.name}}`, lease);
    await guarded.set(this.#key, stock, { ttl: 60_000 });
  }

  async shutdown() {
    this.#redis.disconnect();
  }
}
