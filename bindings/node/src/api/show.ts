/**
 * The key of the method that Node, Deno and Bun call to print an object. `Symbol.for` finds it without
 * importing `node:util`.
 */
export const INSPECT: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;

/** The runtime's own printer, which it passes to the method {@link INSPECT}. */
export type Inspect = (value: unknown, options?: object) => string;

/** Returns what consoles show of an object: its class, and what its `toJSON` returns. */
export function printed(kind: string, object: { toJSON(): object }, ...[depth, options, inspect]: Asked): string {
  if (typeof depth === "number" && depth < 0) {
    return `[${kind}]`;
  }
  const json = object.toJSON();
  return `${kind} ${typeof inspect === "function" ? inspect(json, options) : JSON.stringify(json)}`;
}

/** The arguments that the runtime passes to the method {@link INSPECT}. */
export type Asked = [depth?: number | null, options?: object, inspect?: Inspect];
