import { weak, type Weak } from "../common/platform.js";
import { newInstance, type Glue } from "../module/wasm.js";
import type { StoreHost } from "./store.js";

/**
 * How many hosts share an instance at most. It limits how many a failure of the engine ends, and how
 * much memory stays in use: that of an instance never shrinks until the last of its hosts is gone.
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

  /** One that has room for one more host. */
  static shared(): Instance {
    if (newest === undefined || newest.#places === MOST) {
      newest = new Instance();
    }
    newest.#places += 1;
    return newest;
  }

  /** From now on the host is restarted when the engine of another host fails. */
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

  /** A host's engine failed: no host can use the instance any more, so all of them start anew. */
  abandon(host: StoreHost, cause: unknown): void {
    this.#failed ??= { cause };
    this.glue.discard();
    if (newest === this) {
      newest = undefined;
    }
    this.remove(host);
    host.restart(this.#failed.cause);
    // A restart runs the program's code, which may use another of the hosts: that one is then restarted
    // and removed at once.
    for (let next = this.#hosts.shift(); next !== undefined; next = this.#hosts.shift()) {
      next.deref()?.restart(this.#failed.cause);
    }
  }
}
