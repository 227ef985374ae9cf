import { nodeProcess } from "../common/platform.js";
import type { Package } from "./load.js";

// For code that has no file of its own, from which a package could be looked for. In the worker thread the
// build replaces `load.ts` by this file.

type Require = (name: string) => object;

let bases: readonly string[] = [];

/** Sets the files from whose folders packages are looked for, the preferred one first. */
export function loadFrom(files: readonly string[]): void {
  bases = files;
}

/** Loads a package that the program installed. */
export async function load(name: Package): Promise<object> {
  let cause: unknown;
  for (const require of requires()) {
    try {
      return require(name);
    } catch (error) {
      // A package that is installed but does not load says more than a missing one.
      cause = isMissing(cause) ? error : cause;
    }
  }
  throw new Error(`the package ${name} could not be loaded`, { cause });
}

function requires(): Require[] {
  const modules = nodeProcess()?.getBuiltinModule?.("node:module") as { createRequire?(file: string): Require } | undefined;
  return bases.flatMap((file) => {
    try {
      return modules?.createRequire?.(file) ?? [];
    } catch {
      // A bundler's name for a file, which is no path.
      return [];
    }
  });
}

function isMissing(error: unknown): boolean {
  return error === undefined || (error as { code?: unknown }).code === "MODULE_NOT_FOUND";
}
