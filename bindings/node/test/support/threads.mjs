// A look at the worker threads that the package starts.
const threads = process.getBuiltinModule("node:worker_threads");
const { Worker } = threads;

/** The worker threads of the package so far, the newest last. */
export const workers = [];

/** Code that runs in the next worker threads before that of the package. */
export const first = { code: "" };

threads.Worker = class extends Worker {
  constructor(code, options) {
    super(first.code + code, options);
    this.begun = performance.now();
    this.over = new Promise((resolve) => this.once("exit", resolve));
    workers.push(this);
  }
};
