import code from "thread:code";

/** The program of the worker thread, `worker.ts` in one file. */
export { code };
