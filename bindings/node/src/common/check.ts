import { LeaseholdError } from "./errors.js";
import { messageOf } from "./printable.js";

/**
 * Reads each option once and checks its type; the engine checks its value. Do not read the object again: a
 * getter may return something else the next time.
 *
 * Inherited options and getters count, so an instance of a class will do. Properties that someone added to
 * `Object.prototype` do not count. An unknown name is refused only if it is an own property. The result has
 * no prototype, so an absent option reads as `undefined`, whatever `Object.prototype` has.
 */
export function readOptions<Options extends object>(
  what: string,
  options: Options | undefined,
  types: Readonly<Record<keyof Options & string, OptionKind>>,
): Options {
  const values: Record<string, unknown> = Object.create(null);
  if (options === undefined) {
    return values as Options;
  }
  if (typeof options !== "object" || options === null || isArray(options)) {
    throw config(`${what} must be an object; got ${shown(options)}`);
  }
  // One `try` around everything, and no message made before it is needed: this runs at every call.
  let reading = what;
  try {
    const given = Object.keys(options);
    if (given.length === 0 && !isPlain(options) && !Object.keys(types).some((key) => key in options)) {
      throw config(`${what} must be an object with options, such as { ${Object.keys(types)[0]} }; got one without any`);
    }
    for (const key of given) {
      if (!Object.hasOwn(types, key)) {
        const known = Object.keys(types).join(", ");
        throw config(`${what} have no ${JSON.stringify(key)}; known options: ${known}`);
      }
    }
    for (const key of Object.keys(types) as (keyof Options & string)[]) {
      reading = key;
      if (key in Object.prototype && !declares(options, key)) {
        continue;
      }
      const value: unknown = options[key];
      if (value !== undefined) {
        CHECKS[types[key]](`${what}: ${key}`, value);
        values[key] = value;
      }
    }
  } catch (cause) {
    const option = reading === what ? what : `${what}: ${reading}`;
    throw unreadable(`${option} cannot be read`, cause);
  }
  return values as Options;
}

/** True for an object that was written as one. An object of a class without options is a slip, such as a bare signal. */
function isPlain(object: object): boolean {
  const prototype = Object.getPrototypeOf(object) as object | null;
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** True if an object has the property itself, or inherits it from its class. */
function declares(object: object, key: string): boolean {
  let holder: object | null = object;
  // A proxy may claim to be its own prototype.
  for (let depth = 0; depth < DEEPEST && holder !== null && holder !== Object.prototype; depth += 1) {
    if (Object.hasOwn(holder, key)) {
      return true;
    }
    holder = Object.getPrototypeOf(holder) as object | null;
  }
  return false;
}

/** The longest prototype chain that is searched for an option. */
const DEEPEST = 100;

/** The kinds of option values. */
export type OptionKind = "string" | "number" | "count" | "whole" | "parts" | "limit" | "boolean" | "signal" | "function" | "any";

export const SIGNAL_OPTION: Readonly<Record<"signal", OptionKind>> = { signal: "signal" };

/** The longest text that is examined: far more than any name, pattern or URL has. */
const LONGEST_TEXT = 65_536;

/** Refuses values that are not strings, are far too long, or cannot be encoded in UTF-8. */
export function checkText(what: string, value: unknown): asserts value is string {
  if (typeof value !== "string") {
    throw config(`${what} must be a string; got ${shown(value)}`);
  }
  if (value.length > LONGEST_TEXT) {
    throw config(`${what} has ${value.length} characters; the limit is ${LONGEST_TEXT}`);
  }
  // UTF-8 encodes every lone surrogate as the same replacement, so two such names would be one in the store.
  if (LONE_SURROGATE.test(value)) {
    throw config(`${what} contains a lone surrogate, which is not valid Unicode`);
  }
}

/**
 * Touches an object of the program, which may throw at any access. Such an error becomes a `config` error
 * that begins with `failed`.
 */
export function attempt<T>(failed: string, touch: () => T): T {
  try {
    return touch();
  } catch (cause) {
    throw unreadable(failed, cause);
  }
}

function unreadable(failed: string, cause: unknown): unknown {
  return cause instanceof LeaseholdError ? cause : config(`${failed}: ${messageOf(cause)}`, cause);
}

export function config(message: string, cause?: unknown): LeaseholdError {
  return new LeaseholdError("config", message, cause === undefined ? undefined : { cause });
}

// An explicit range, because the property `\p{Surrogate}` is slower to look up.
const LONE_SURROGATE = /[\ud800-\udfff]/u;

/** Returns true if an object has all these methods. */
export function can(object: object, ...methods: string[]): boolean {
  return methods.every((name) => typeof (object as Record<string, unknown>)[name] === "function");
}

/**
 * Makes a check that refuses other values. The annotation lets bundles that read no options drop the checks.
 */
// @__NO_SIDE_EFFECTS__
const mustBe = (be: string, is: (value: unknown) => boolean) => (what: string, value: unknown) => {
  if (!is(value)) {
    throw config(`${what} must be ${be}; got ${shown(value)}`);
  }
};

export const checkWhole = mustBe("a whole number from 0 up", (value) => Number.isSafeInteger(value) && isTime(value));

export const checkString = mustBe("a string", (value) => typeof value === "string");

export const checkFunction = mustBe("a function", (value) => typeof value === "function");

const CHECKS: Readonly<Record<OptionKind, (what: string, value: unknown) => void>> = {
  string: checkText,
  number: mustBe("a number of milliseconds from 0 up", (value) => isTime(value) && value !== Infinity),
  count: mustBe("a whole number from 1 up", (value) => Number.isInteger(value) && isTime(value) && value > 0 && value < 2 ** 31),
  whole: checkWhole,
  parts: mustBe("a whole number of parts per million from 0 up", (value) => Number.isSafeInteger(value) && isTime(value)),
  limit: mustBe("a number of milliseconds from 0 up, or Infinity", isTime),
  boolean: mustBe("true or false", (value) => typeof value === "boolean"),
  signal: mustBe("an AbortSignal", (value) => {
    const signal = Object(value) as Partial<AbortSignal>;
    return typeof signal.aborted === "boolean" && can(signal, "addEventListener", "removeEventListener");
  }),
  function: checkFunction,
  any() {},
};

/** Returns false for a revoked proxy, for which `Array.isArray` throws. */
function isArray(value: object): boolean {
  try {
    return Array.isArray(value);
  } catch {
    return false;
  }
}

function isTime(value: unknown): value is number {
  return typeof value === "number" && value >= 0;
}

/** Returns a value as messages show it: short, and without the contents of objects. */
export function shown(value: unknown): string {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
    case "number":
    case "boolean":
    case "undefined":
      return String(value);
    case "object":
      return value === null ? "null" : isArray(value) ? "an array" : "an object";
    default:
      return `a ${typeof value}`;
  }
}

/**
 * The key of a class's static method that tells whether the class made an object.
 *
 * @internal
 */
export const MADE: unique symbol = Symbol("made");

/** A class whose methods check that they are called on its own objects. */
interface CheckedClass {
  readonly prototype: object;
  /**
   * True for an object that this class made. Such an object has a private name, which proxies and objects
   * with the same prototype lack.
   */
  [MADE](self: object): boolean;
}

/**
 * Refuses the call of a method that was detached from its object, as by `const { acquire } = lock`, with a
 * clearer message than JavaScript's own.
 *
 * @param call the method as a program would write it: `lock.acquire`
 */
export function checkAttached(self: unknown, made: CheckedClass, call: string): void {
  const isObject = typeof self === "object" && self !== null;
  if (isObject && made[MADE](self)) {
    return;
  }
  const [object] = call.split(".");
  const message =
    isObject && looksLike(self, made)
      ? `${call} was called on a proxy or a copy of its ${object}: call it on the ${object} itself`
      : `${call} was called without its ${object}: call it as ${call}(…), or pass (…) => ${call}(…)`;
  throw config(message);
}

/**
 * True for an object whose prototype chain has the class, and for an object that cannot be asked, such as a
 * revoked proxy.
 */
function looksLike(self: object, { prototype }: CheckedClass): boolean {
  try {
    return Object.prototype.isPrototypeOf.call(prototype, self);
  } catch {
    return true;
  }
}
