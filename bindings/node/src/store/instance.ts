import { weak, type Weak } from "../common/platform.js";
import { newInstance, type Glue } from "../module/wasm.js";
import type { StoreHost } from "./store.js";

/**
 * The most hosts that share an instance.
 *
 * It limits how many hosts a failure of the engine restarts, and how much memory stays in use: an instance's
 * memory never shrinks until the last of its hosts is gone.
 */
const MOST = 100;

/** Makes an instance of the engine's module, with or without quorums. */
export type NewInstance = () => Glue;

/** The instances that take the next host. */
const newest = new Map<NewInstance, Instance>();

/** True if each host has an instance of its own. */
let apart = false;

/** Gives each host from now on an instance of its own, so that a failure affects no other host. */
export function keepApart(): void {
  apart = true;
}

/** An instance of the engine's module, and the hosts whose engines live in it. */
class Instance {
  readonly glue: Glue;
  #places = 0;
  #hosts: Weak<StoreHost>[] = [];
  #failed: { readonly cause: unknown } | undefined;

  constructor(private readonly make: NewInstance) {
    this.glue = make();
  }

  /** Returns an instance with room for one more host. */
  static shared(make: NewInstance): Instance {
    let shared = newest.get(make);
    if (shared === undefined || shared.#places === MOST) {
      shared = new Instance(make);
      newest.set(make, shared);
    }
    shared.#places += 1;
    return shared;
  }

  /** Adds a host. It is restarted when the engine of another host in this instance fails. */
  add(host: StoreHost): void {
    this.remove(host);
    this.#hosts.push(weak(host));
  }

  remove(host: StoreHost): void {
    this.#hosts = this.#hosts.filter((other) => other.deref() !== host);
  }

  get failed(): boolean {
    return this.#failed !== undefined;
  }

  /** Restarts all hosts after a failed engine, because no host can use the instance any more. */
  abandon(host: StoreHost, cause: unknown): void {
    this.#failed ??= { cause };
    this.glue.discard();
    if (newest.get(this.make) === this) {
      newest.delete(this.make);
    }
    this.remove(host);
    host.restart(this.#failed.cause);
    // A restart runs the program's code, which may use another of the hosts. That host is then restarted and
    // removed at once.
    for (let next = this.#hosts.shift(); next !== undefined; next = this.#hosts.shift()) {
      next.deref()?.restart(this.#failed.cause);
    }
  }
}

/** A store whose hosts share instances of the engine's module with the hosts of other stores. */
export abstract class ServerStore {
  #instance: Instance | undefined;
  /**
   * True if the host's engine failed once, or if all hosts are kept apart. From then on it has an instance of
   * its own, so another failure affects no other host.
   */
  #alone = apart;

  constructor(private readonly make: NewInstance = newInstance) {}

  /** Returns an instance for a new engine of the host. */
  instance(): Glue {
    this.#instance = this.#alone ? new Instance(this.make) : Instance.shared(this.make);
    return this.#instance.glue;
  }

  open(host: StoreHost): void {
    this.#instance?.add(host);
  }

  abandon(host: StoreHost, cause: unknown): void {
    this.#alone ||= this.#instance?.failed === false;
    this.#instance?.abandon(host, cause);
  }

  protected forget(host: StoreHost): void {
    this.#instance?.remove(host);
  }
}
