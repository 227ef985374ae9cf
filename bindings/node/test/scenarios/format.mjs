// The format of the scenario files: see tests/vectors/README.md.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";

export const VECTORS = new URL("../../../../tests/vectors/", import.meta.url);

export const readJson = (path) => JSON.parse(readFileSync(new URL(path, VECTORS), "utf8"));

/** Returns every scenario that should pass, by name; or only the one that SCENARIO names. */
export function scenarios() {
  const only = process.env.SCENARIO;
  return readdirSync(new URL("scenarios", VECTORS))
    .sort()
    .map((file) => {
      assert.match(file, /\.json$/, "only scenarios are there");
      return [file.slice(0, -".json".length), read(readJson(`scenarios/${file}`))];
    })
    .filter(([name]) => only === undefined || only === name);
}

/** Checks a scenario. Throws if it contains anything that this interpreter does not know. */
export function read(scenario) {
  SCENARIO(scenario);
  const { stores = ["redis", "memory"], limit = 10_000 } = scenario;
  const only = (kind) => stores.every((store) => store === kind);
  const commands = scenario.steps.some((step) => step.do === "redis");
  assert.ok(!commands || only("redis"), "a store in memory takes no commands");
  const cuts = scenario.steps.some((step) => step.do === "cutOff");
  const alone = Object.values(scenario.lockers).some(({ server }) => server !== undefined);
  assert.ok(!(cuts || alone) || only("quorum"), "only a quorum has several servers");
  for (const [name, { name: one, kind }] of Object.entries(scenario.locks)) {
    const several = kind?.all !== undefined || kind?.allAtOnce !== undefined;
    assert.ok((one !== undefined) !== several, `${name} has a name or a list of names, not both`);
  }
  return { ...scenario, stores, limit };
}

const string = (value) => assert.equal(typeof value, "string");
const boolean = (value) => assert.equal(typeof value, "boolean");
const count = (value) => assert.ok(Number.isSafeInteger(value) && value >= 0, `${value} is no number`);
const any = () => {};
const one = (...values) => (value) => assert.ok(values.includes(value), `${value} is none of ${values}`);
const list = (item) => (value) => {
  assert.ok(Array.isArray(value), `${value} is no list`);
  value.forEach(item);
};
const range = (value) => {
  list(count)(value);
  assert.equal(value.length, 2);
};
const nullable = (kind) => (value) => value === null || kind(value);
const map = (kind) => (value) => Object.values(value).forEach(kind);
/** A number, or an object of numbers by name. */
const numbers = (value) => (typeof value === "object" ? map(count)(value) : count(value));
/** An object with these fields and no others. A field with a question mark is optional. */
const object = (fields) => (value) => {
  assert.equal(typeof value, "object");
  const known = Object.entries(fields).map(([field, kind]) => [field.replace("?", ""), field.endsWith("?"), kind]);
  for (const [field, optional, kind] of known) {
    assert.ok(optional || field in value, `${field} is missing`);
    if (field in value) {
      kind(value[field]);
    }
  }
  for (const field of Object.keys(value)) {
    assert.ok(known.some(([name]) => name === field), `there is no field ${field}`);
  }
};

const LOCKER = {
  "server?": count,
  "namespace?": string,
  "owner?": string,
  "connectTimeout?": count,
  "commandTimeout?": count,
  "patience?": count,
  "driftMargin?": count,
  "tokenRetention?": count,
};
/** What a handle is. */
const kind = (value) => {
  if (typeof value === "string") {
    one("lock", "reader", "writer")(value);
    return;
  }
  object({ "slots?": count, "units?": count, "all?": list(string), "allAtOnce?": list(string) })(value);
  assert.equal(Object.keys(value).length, 1, "a handle is of one kind");
};
const LOCK = {
  locker: string,
  "name?": string,
  "kind?": kind,
  "weight?": count,
  "maxLine?": count,
  "strict?": boolean,
  "ttl?": count,
  "fixed?": boolean,
  "reentrant?": boolean,
  "owner?": string,
  "denseTokens?": boolean,
  "atMost?": count,
  "atLeast?": count,
};
const FAILURE = { "error?": string, "says?": list(string) };
const OUTCOME = { "as?": string, "result?": one("held", "busy"), ...FAILURE };
const HOLDER = {
  "holder?": nullable(
    object({ "token?": string, "label?": string, "reclaimable?": boolean, "remaining?": range }),
  ),
};
const EVENT = {
  type: string,
  "name?": string,
  "token?": string,
  "reason?": string,
  "position?": count,
  "by?": string,
  "code?": string,
  "capacity?": count,
  "wanted?": count,
};

/** The fields of each step. */
export const STEPS = {
  tryAcquire: { lock: string, ...OUTCOME },
  acquireWithin: { lock: string, ms: count, ...OUTCOME },
  acquire: { lock: string, ...OUTCOME },
  begin: { lock: string, as: string, "ms?": count },
  end: { call: string, ...OUTCOME },
  pending: { calls: list(string) },
  abort: { call: string },
  release: { lease: string, "names?": list(string), ...FAILURE },
  resize: { lock: string, capacity: count, "epoch?": count, ...FAILURE },
  downgrade: { lease: string, ...FAILURE },
  permit: {
    lease: string,
    "slots?": list(count),
    "resource?": string,
    "capacity?": count,
    "epoch?": count,
    "generation?": nullable(string),
  },
  renew: { lease: string, "ttl?": count, ...FAILURE },
  pass: { lease: string, as: string, ...FAILURE },
  accept: { "locker?": string, "lock?": string, "ticket?": string, "text?": string, "as?": string, ...FAILURE },
  lease: { lease: string, "valid?": boolean, "remaining?": range, "holdCount?": count },
  held: { lock: string, held: boolean },
  lost: { lease: string, reason: string, "name?": string },
  run: { lease: string, "reason?": string },
  tokens: { "rising?": list(string), "equal?": list(string), "are?": map(count) },
  inspect: {
    locker: string,
    name: string,
    ...HOLDER,
    "lastToken?": nullable(string),
    "waiting?": count,
    "line?": list(string),
    "wanted?": nullable(string),
    "shared?": nullable(object({ "capacity?": count, "used?": count, "by?": list(string) })),
    ...FAILURE,
  },
  list: { locker: string, pattern: string, "names?": list(string), ...FAILURE },
  forceRelease: { locker: string, name: string, ...HOLDER, ...FAILURE },
  requestYield: { locker: string, name: string, within: count, "force?": boolean, as: string },
  yielded: { request: string, is: boolean, ...FAILURE },
  wanted: { lease: string, ...FAILURE },
  stats: { locker: string, is: map(numbers) },
  shutdown: { locker: string },
  events: { "lock?": string, "locker?": string, as: string },
  told: { events: string, "expect?": list(object(EVENT)), "ends?": boolean },
  hold: { lock: string, as: string },
  next: { tenures: string, "as?": string, "ends?": boolean },
  badLocker: { ...LOCKER, ...FAILURE },
  badLock: { ...LOCK, ...FAILURE },
  subscribed: { count },
  pause: { ms: count },
  cutOff: { server: count },
  redis: { command: list(string), "reply?": any },
};

const step = (value) => {
  assert.ok(Object.hasOwn(STEPS, value.do), `there is no step ${value.do}`);
  object({ do: string, ...STEPS[value.do] })(value);
};

const SCENARIO = object({
  shows: string,
  "stores?": list(one("redis", "memory", "quorum")),
  "limit?": count,
  lockers: map(object(LOCKER)),
  locks: map(object(LOCK)),
  steps: list(step),
});
