import { config } from "../common/check.js";

/** Rejects. It replaces `openThread` in browsers and edge workers. */
export async function openThread(): Promise<never> {
  throw config("thread needs the worker threads of Node, Deno or Bun, which this build for browsers and edge workers cannot start; leave `thread` out");
}
