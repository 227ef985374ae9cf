// The program of the worker thread. The build makes it a text, which `link.ts` runs.

import { nodeProcess } from "../common/platform.js";
import { quorumOf } from "../module/quorum-given.js";
import { supplyModule } from "../module/module.js";
import { loadFrom } from "../store/load-from.js";
import { openQuorum, openServer, type Opened } from "../store/open.js";
import { Served } from "./served.js";
import { type Batch, Outbox, type Start, Told, written } from "./wire.js";

const { process } = globalThis as unknown as {
  process: {
    getBuiltinModule(name: "node:worker_threads"): typeof import("node:worker_threads");
    on(event: "exit", act: () => void): void;
  };
};
const { parentPort, workerData } = process.getBuiltinModule("node:worker_threads");
const start = workerData as Start;
const outbox = new Outbox((batch) => {
  served?.look();
  if (batch.length > 0) {
    parentPort?.postMessage(batch);
  }
});
/** The batches that came before the store was open. */
const early: Batch[] = [];
let served: Served | undefined;

ownProcess();
parentPort?.on("message", (batch: Batch) => (served === undefined ? early.push(batch) : served.take(batch)));
void serve();

async function serve(): Promise<void> {
  supplyModule(start.module);
  loadFrom(start.bases);
  let opened: Opened;
  try {
    opened = await open();
  } catch (error) {
    outbox.add(Told.NotOpened, ...written(error));
    return;
  }
  const serving = new Served(start, opened, outbox);
  process.on("exit", () => serving.ended());
  outbox.add(Told.Opened, serving.polled, opened.findings);
  early.splice(0).forEach((batch) => serving.take(batch));
  served = serving;
}

function open(): Promise<Opened> {
  const { urls, quorum, lazily } = start;
  const { connectTimeout: timeout, namespace } = start.settings;
  return quorum === undefined
    ? openServer(urls[0] ?? "", { lazily, timeout, namespace })
    : openQuorum(urls, quorumOf(quorum), { timeout, namespace });
}

/** Leaves to the program's thread what concerns the process. */
function ownProcess(): void {
  const own = nodeProcess() as { emitWarning?(message: string): void; getActiveResourcesInfo?(): string[] };
  own.emitWarning = (message) => outbox.add(Told.Warning, message);
  // Only the program's thread can tell whether a lease alone keeps the process alive.
  own.getActiveResourcesInfo = () => [];
}
