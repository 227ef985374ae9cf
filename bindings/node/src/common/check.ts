import { LeaseholdError } from "./errors.js";
import { messageOf } from "./printable.js";

/**
 * Reads each option once and checks its type; the engine checks its value. Do not read the object again:
 * a getter may return something else the next time.
 *
 * Inherited options and getters count, so an object of a class will do; but not what a program or a library has
 * put on the prototype of all objects. An unknown name is refused only if it is a property of the object itself.
 * The result has no prototype: an option that is not given is read as `undefined`, whatever that prototype has.
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
    throw config(`${what} are an object, not ${shown(options)}`);
  }
  // All of it within one `try`, and no text made unless it is needed: this runs at every call.
  let reading = what;
  try {
    for (const key of Object.keys(options)) {
      if (!Object.hasOwn(types, key)) {
        const known = Object.keys(types).join(", ");
        throw config(`${what} have no ${JSON.stringify(key)}; there are: ${known}`);
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

/** True if an object has a property of its own, or from its class. */
function declares(object: object, key: string): boolean {
  let holder: object | null = object;
  // A proxy may say that it is its own prototype.
  for (let depth = 0; depth < DEEPEST && holder !== null && holder !== Object.prototype; depth += 1) {
    if (Object.hasOwn(holder, key)) {
      return true;
    }
    holder = Object.getPrototypeOf(holder) as object | null;
  }
  return false;
}

/** How many classes an object of options may be derived from. */
const DEEPEST = 100;

/** What a value may be. */
export type OptionKind = "string" | "number" | "count" | "parts" | "limit" | "boolean" | "signal" | "function" | "any";

export const SIGNAL_OPTION: Readonly<Record<"signal", OptionKind>> = { signal: "signal" };

/** The longest text that is looked at: far more than any name, pattern or URL has. */
const LONGEST_TEXT = 65_536;

/** Refuses what is no string, what is far too long, and what cannot be written in UTF-8. */
export function checkText(what: string, value: unknown): asserts value is string {
  if (typeof value !== "string") {
    throw config(`${what} is a string, not ${shown(value)}`);
  }
  if (value.length > LONGEST_TEXT) {
    throw config(`${what} has ${value.length} characters; no text may have more than ${LONGEST_TEXT} here`);
  }
  // They are all written as the same replacement, so two such names would be one in the store.
  if (LONE_SURROGATE.test(value)) {
    throw config(`${what} has half of a surrogate pair in it, which is not text`);
  }
}

/** Uses an object of the program, which may throw at anything; that becomes an error that says `failed`. */
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

// Not by its property, which is looked up among all characters.
const LONE_SURROGATE = /[\ud800-\udfff]/u;

/** Returns true if an object has all these methods. */
export function can(object: object, ...methods: string[]): boolean {
  return methods.every((name) => typeof (object as Record<string, unknown>)[name] === "function");
}

/** Refuses what is not such a value. The mark lets bundles that read no options leave the checks out. */
// @__NO_SIDE_EFFECTS__
const mustBe = (be: string, is: (value: unknown) => boolean) => (what: string, value: unknown) => {
  if (!is(value)) {
    throw config(`${what} is ${be}, not ${shown(value)}`);
  }
};

export const checkFunction = mustBe("a function", (value) => typeof value === "function");

const CHECKS: Readonly<Record<OptionKind, (what: string, value: unknown) => void>> = {
  string: checkText,
  number: mustBe("a number of milliseconds from 0 up", (value) => isTime(value) && value !== Infinity),
  count: mustBe("a whole number from 1 up", (value) => Number.isInteger(value) && isTime(value) && value > 0 && value < 2 ** 31),
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

/** False for a proxy that was revoked, for which `Array.isArray` throws. */
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

/** A value as messages show it: short, and never what is in an object. */
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

/** Has a class say which objects it made. @internal */
export const MADE: unique symbol = Symbol("made");

/** A class whose methods check what they are called on. */
interface CheckedClass {
  readonly prototype: object;
  /** True for an object that this class made: it has a private name, which proxies and objects of the same prototype lack. */
  [MADE](self: object): boolean;
}

/**
 * Refuses the call of a method that was taken off its object, such as by `const { acquire } = lock`,
 * with a clearer message than JavaScript's own.
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
      : `${call} was called without its ${object}: call it as ${call}(…), or pass (…) => ${call}(…) on`;
  throw config(message);
}

/** True for an object with the methods of the class, and for one that cannot be asked, such as a revoked proxy. */
function looksLike(self: object, { prototype }: CheckedClass): boolean {
  try {
    return Object.prototype.isPrototypeOf.call(prototype, self);
  } catch {
    return true;
  }
}
