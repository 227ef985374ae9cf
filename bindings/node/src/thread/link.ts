import { attempt, config } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { nodeProcess, now } from "../common/platform.js";
import { messageOf } from "../common/printable.js";
import { code } from "./code.js";
import { Counted, Slots } from "./shared.js";
import { Ask, type Batch, Outbox, type Start } from "./wire.js";

type Threads = typeof import("node:worker_threads");

/** The data that a worker thread starts with, except what its link adds. */
export type Opening = Omit<Start, "counted" | "at" | "bases"> & {
  /** The number of counted numbers, and how many of them are gauges. */
  readonly counts: readonly [length: number, gauges: number];
};

interface LinkHost {
  /** The worker thread sent a batch. */
  told(batch: Batch): void;
  /** The worker thread ended, although nobody ended it. */
  ended(cause: LeaseholdError): void;
}

/** A worker thread, and what this thread shares with it. */
export class Link {
  readonly slots: Slots;
  readonly counted: Counted;
  readonly #worker: InstanceType<Threads["Worker"]>;
  readonly #outbox: Outbox;
  /** True once nothing that the thread says counts any more. */
  #over = false;

  constructor(opening: Opening, host: LinkHost) {
    const { counts, ...rest } = opening;
    // The number after the counts is that of losses by a crash.
    this.counted = Counted.of(counts[0] + 1);
    const workerData: Start = { ...rest, counted: [...counts, this.counted.buffer], bases: bases(), at: now() };
    const { Worker } = threads();
    this.#worker = attempt("thread: the runtime does not start a worker thread", () => {
      return new Worker(code, { eval: true, name: "leasehold", workerData });
    });
    this.#outbox = new Outbox((batch) => this.#post(batch));
    this.slots = new Slots((page) => this.send(Ask.Page, page));
    let failed: unknown;
    this.#worker.on("message", (batch: Batch) => {
      if (!this.#over) {
        host.told(batch);
      }
    });
    const end = (why: string) => {
      if (!this.#over) {
        void this.end();
        const message = `the locker's worker thread ended: ${why}`;
        host.ended(new LeaseholdError("internal", message, failed === undefined ? undefined : { cause: failed }));
      }
    };
    for (const event of ["error", "messageerror"] as const) {
      this.#worker.on(event, (error: unknown) => {
        failed = error;
        end(messageOf(error));
      });
    }
    this.#worker.on("exit", (exit) => end(`exit code ${exit}`));
  }

  send(...message: unknown[]): void {
    this.#outbox.add(...message);
  }

  /** Sets whether the thread keeps the process alive. */
  keepAlive(alive: boolean): void {
    this.#worker[alive ? "ref" : "unref"]();
  }

  /** Ends the thread. */
  async end(): Promise<void> {
    this.#over = true;
    await this.#worker.terminate();
  }

  #post(batch: unknown[]): void {
    if (!this.#over && batch.length > 0) {
      // The time of this thread's clock, from which the other thread learns how its own clock differs.
      this.#worker.postMessage([now(), ...batch]);
    }
  }
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
