import code from "thread:code.txt";

/** The program of the worker thread, `worker.ts` in one file. */
export { code };
