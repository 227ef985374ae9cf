import { attempt, config } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { keepAlive, nodeProcess, now, startTimer, warn } from "../common/platform.js";
import { messageOf } from "../common/printable.js";
import type { WasmModule } from "../module/wasm.js";
import { code } from "./code.js";
import type { Begin, Start } from "./wire.js";

type Threads = typeof import("node:worker_threads");
export type Port = InstanceType<Threads["MessagePort"]>;

/** Milliseconds in which a thread must answer a check. A busy thread does, and one that hangs does not. */
const MOST_SILENCE = 10_000;

/** A locker that the thread serves. */
export interface Member {
  /** The thread ended, although nobody ended it. */
  ended(cause: LeaseholdError): void;
}

/** The thread that takes the next locker. */
let running: Thread | undefined;
let startedAt = -Infinity;

/** The worker thread that serves all lockers of this copy of the package. */
export class Thread {
  readonly #worker: InstanceType<Threads["Worker"]>;
  readonly #members = new Set<Member>();
  /** The members for which the thread keeps the process alive. */
  readonly #waiting = new Set<Member>();
  /** 0 from a check until the thread answers. */
  #answered = flag(1);
  /** True once nothing that the thread says counts any more. */
  #over = false;

  private constructor(workerData: Start) {
    const { Worker } = threads();
    this.#worker = attempt("thread: the runtime does not start a worker thread", () => {
      return new Worker(code, { eval: true, name: "leasehold", workerData });
    });
    this.#worker.unref();
    let failed: unknown;
    for (const event of ["error", "messageerror"] as const) {
      this.#worker.on(event, (error: unknown) => {
        failed = error;
        this.#fail(messageOf(error), error);
      });
    }
    this.#worker.on("exit", (exit) => this.#fail(`exit code ${exit}`, failed));
    this.#worker.on("message", warn);
  }

  /** Returns the running thread, or otherwise starts one. */
  static shared(module: WasmModule): Thread {
    if (running === undefined) {
      startedAt = now();
      running = new Thread({ module, bases: bases() });
    } else {
      // The new locker would wait for a thread that hangs.
      running.check();
    }
    return running;
  }

  /** Returns the time of the last start; before all times if a thread runs, because no start is needed. */
  static get lastStart(): number {
    return running === undefined ? startedAt : -Infinity;
  }

  /** Adds a locker, and returns the port through which it talks to the thread. */
  join(member: Member, begin: Omit<Begin, "port">): Port {
    const { port1, port2: port } = new (threads().MessageChannel)();
    this.#worker.postMessage({ ...begin, port }, [port]);
    this.#members.add(member);
    return port1;
  }

  /** Removes a locker. Ends the thread after the last of them. */
  async leave(member: Member): Promise<void> {
    if (!this.#members.delete(member) || this.#over) {
      return;
    }
    if (this.#members.size > 0) {
      this.keepAlive(member, false);
    } else {
      await this.#end();
    }
  }

  /** Sets whether a locker needs the process to stay alive. The thread keeps it alive while any of them does. */
  keepAlive(member: Member, alive: boolean): void {
    const { size } = this.#waiting;
    this.#waiting[alive ? "add" : "delete"](member);
    if (size === 0 || this.#waiting.size === 0) {
      this.#worker[this.#waiting.size > 0 ? "ref" : "unref"]();
    }
  }

  /** Ends the thread unless it answers in time. */
  check(): void {
    if (Atomics.load(this.#answered, 0) === 0) {
      // It was asked before, and has not answered yet.
      return;
    }
    // The answer comes by memory, so it is seen even if this thread was blocked meanwhile.
    const answered = flag(0);
    this.#answered = answered;
    this.#worker.postMessage(answered);
    const look = () => {
      if (Atomics.load(answered, 0) === 0) {
        this.#fail(`it did not answer within ${MOST_SILENCE} ms`);
      }
    };
    keepAlive(startTimer(look, MOST_SILENCE), false);
  }

  /** Ends a thread that failed, and tells its lockers, which may start another one. */
  #fail(why: string, cause?: unknown): void {
    if (this.#over) {
      return;
    }
    void this.#end();
    const message = `the locker's worker thread ended: ${why}`;
    const error = new LeaseholdError("internal", message, cause === undefined ? undefined : { cause });
    for (const member of [...this.#members]) {
      member.ended(error);
    }
  }

  async #end(): Promise<void> {
    this.#over = true;
    running = undefined;
    await this.#worker.terminate();
  }
}

/** Returns a number that both threads see. */
function flag(value: number): Int32Array {
  return new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)).fill(value);
}

function threads(): Threads {
  const process = nodeProcess() as { getBuiltinModule?(name: string): Threads | undefined } | undefined;
  const found = process?.getBuiltinModule?.("node:worker_threads");
  if (found?.Worker === undefined || typeof SharedArrayBuffer === "undefined") {
    const needed = "worker threads and shared memory: Node 20.16, 22.3 or newer, Deno or Bun";
    throw config(`thread needs ${needed}; leave \`thread\` out`);
  }
  return found;
}

/**
 * Returns files from whose folders the worker thread looks for a client package: this file, wherever a
 * bundler has put it, and then the program. The code of the thread has no file of its own.
 */
function bases(): string[] {
  const { argv, cwd } = nodeProcess() as unknown as { readonly argv?: readonly string[]; cwd?(): string };
  return [here(), argv?.[1], `${cwd?.() ?? ""}/`].filter((base) => base !== undefined);
}

/**
 * Returns the file of this code by its stack trace. `import.meta` would do it in ES modules only, and
 * bundlers for CommonJS replace it by nothing.
 */
function here(): string | undefined {
  const { prepareStackTrace } = Error;
  try {
    Error.prepareStackTrace = (_, sites) => sites[0]?.getFileName();
    return new Error().stack;
  } catch {
    // Some programs freeze the class.
    return undefined;
  } finally {
    restore(prepareStackTrace);
  }
}

function restore(prepareStackTrace: typeof Error.prepareStackTrace): void {
  try {
    Error.prepareStackTrace = prepareStackTrace;
  } catch {
    // Then it was never replaced.
  }
}
