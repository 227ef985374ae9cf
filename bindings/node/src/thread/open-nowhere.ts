import { config } from "../common/check.js";

/** Rejects. It replaces `openThread` in browsers and edge workers. */
export async function openThread(): Promise<never> {
  const lacks = "which this build for browsers and edge workers cannot start";
  throw config(`thread needs the worker threads of Node, Deno or Bun, ${lacks}; leave \`thread\` out`);
}
