// The program of the worker thread. The build makes it a text, which `thread.ts` runs.

import { nodeProcess } from "../common/platform.js";
import { quorumOf } from "../module/quorum-given.js";
import { supplyModule } from "../module/module.js";
import { keepApart } from "../store/instance.js";
import { loadFrom } from "../store/load-from.js";
import { openQuorum, openServer, type Opened } from "../store/open.js";
import { Served } from "./served.js";
import { type Batch, type Begin, Outbox, type Start, Told, written } from "./wire.js";

const { process } = globalThis as unknown as {
  process: {
    getBuiltinModule(name: "node:worker_threads"): typeof import("node:worker_threads");
    on(event: "exit", act: () => void): void;
  };
};
const { parentPort, workerData } = process.getBuiltinModule("node:worker_threads");
/** The lockers of this thread that have leases to lose. */
const all = new Set<Served>();

begin(workerData as Start);

function begin({ module, bases }: Start): void {
  ownProcess();
  supplyModule(module);
  loadFrom(bases);
  // A failure of one locker's engine is no other locker's.
  keepApart();
  process.on("exit", () => all.forEach((served) => served.lose()));
  parentPort?.on("message", (message: Begin | Int32Array) => {
    if ("port" in message) {
      void serve(message);
    } else {
      // The program asks whether this thread hangs.
      Atomics.store(message, 0, 1);
    }
  });
}

/** Serves one locker until it closes its port. */
async function serve(begin: Begin): Promise<void> {
  const { port } = begin;
  let served: Served | undefined;
  let closed = false;
  /** The batches that came before the store was open. */
  const early: Batch[] = [];
  const outbox = new Outbox((batch) => {
    served?.look();
    if (batch.length > 0) {
      port.postMessage(batch);
    }
  });
  const end = () => {
    closed = true;
    // The locker shut down. If that took too long, the shutdown may go on here.
    const forget = () => served !== undefined && all.delete(served);
    void served?.shutdown().then(forget, forget);
  };
  port.on("message", (batch: Batch) => (served === undefined ? early.push(batch) : served.take(batch)));
  port.on("close", end);
  let opened: Opened;
  try {
    opened = await open(begin);
  } catch (error) {
    outbox.add(Told.NotOpened, ...written(error));
    return;
  }
  const serving = new Served(begin, opened, outbox);
  all.add(serving);
  outbox.add(Told.Opened, serving.polled, opened.findings);
  early.splice(0).forEach((batch) => serving.take(batch));
  served = serving;
  if (closed) {
    end();
  }
}

function open({ urls, quorum, lazily, settings }: Begin): Promise<Opened> {
  const { connectTimeout: timeout, namespace } = settings;
  return quorum === undefined
    ? openServer(urls[0] ?? "", { lazily, timeout, namespace })
    : openQuorum(urls, quorumOf(quorum), { timeout, namespace });
}

/** Leaves to the program's thread what concerns the process. */
function ownProcess(): void {
  const own = nodeProcess() as { emitWarning?(message: string): void; getActiveResourcesInfo?(): string[] };
  own.emitWarning = (message) => parentPort?.postMessage(message);
  // Only the program's thread can tell whether a lease alone keeps the process alive.
  own.getActiveResourcesInfo = () => [];
}
