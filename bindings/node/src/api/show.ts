/**
 * By this name Node, Deno and Bun ask an object what to print of it. It is registered, so that
 * `node:util` is not needed.
 */
export const INSPECT: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;

/** The printer itself, as it is handed over. */
export type Inspect = (value: unknown, options?: object) => string;

/** What consoles show of an object: what `toJSON` gives of it. */
export function printed(kind: string, object: { toJSON(): object }, ...[depth, options, inspect]: Asked): string {
  if (typeof depth === "number" && depth < 0) {
    return `[${kind}]`;
  }
  const json = object.toJSON();
  return `${kind} ${typeof inspect === "function" ? inspect(json, options) : JSON.stringify(json)}`;
}

export type Asked = [depth?: number | null, options?: object, inspect?: Inspect];
