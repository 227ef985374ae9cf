import { weak, type Weak } from "../common/platform.js";
import { newInstance, type Glue } from "../module/wasm.js";
import type { StoreHost } from "./store.js";

/**
 * How many hosts share an instance at the most. It bounds what a failure of the engine can end, and
 * what an instance keeps: its memory never shrinks, and goes with the last of its hosts.
 */
const MOST = 100;

/** The one that takes the next host. */
let newest: Instance | undefined;

/** An instance of the engine's module, and the hosts whose engines live in it. */
export class Instance {
  readonly glue: Glue = newInstance();
  #places = 0;
  #hosts: Weak<StoreHost>[] = [];
  #failed: { readonly cause: unknown } | undefined;

  /** One that has a place for a host more. */
  static shared(): Instance {
    if (newest === undefined || newest.#places === MOST) {
      newest = new Instance();
    }
    newest.#places += 1;
    return newest;
  }

  /** From now on the host is told of a failure of another one. */
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

  /** A host's engine failed: what lives here is of no use to any of them, and all of them start anew. */
  abandon(host: StoreHost, cause: unknown): void {
    this.#failed ??= { cause };
    this.glue.discard();
    if (newest === this) {
      newest = undefined;
    }
    this.remove(host);
    host.restart(this.#failed.cause);
    // A program that is told of one host may use another, which is restarted by that and gone from here.
    for (let next = this.#hosts.shift(); next !== undefined; next = this.#hosts.shift()) {
      next.deref()?.restart(this.#failed.cause);
    }
  }
}
