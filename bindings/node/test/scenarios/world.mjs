// Runs one scenario on one store.
import assert from "node:assert/strict";
import { LeaseholdError, LeaseLostError } from "../../dist/index.js";
import { awake, pause, within } from "../support/wait.mjs";
import { expectReply } from "./reply.mjs";
import { Kept } from "./text.mjs";

/** Runs a scenario on a new store. Rejects with the `step` that failed, counted from 1, and the reason. */
export async function run(scenario, { open }) {
  const store = await open();
  const world = new World(store, scenario.limit);
  let at = 0;
  try {
    for (const [name, options] of Object.entries(scenario.lockers)) {
      world.lockers.add(name, await store.locker(options));
    }
    for (const [name, spec] of Object.entries(scenario.locks)) {
      world.locks.add(name, world.lock(spec));
    }
    for (const step of scenario.steps) {
      at += 1;
      await world.step(step);
    }
  } catch (error) {
    throw Object.assign(new Error(`step ${at}: ${error.message}`, { cause: error }), { step: at });
  } finally {
    await world.close();
    await store.close();
  }
}

/** All objects that the steps of one scenario have made so far, by their names in the scenario. */
class World {
  lockers = new Named("locker");
  locks = new Named("lock");
  leases = new Named("lease");
  /** The texts of tickets. */
  tickets = new Named("ticket");
  calls = new Named("call");
  requests = new Named("request");
  readers = new Named("reader");
  holds = new Named("tenures");
  kept = new Kept();
  #store;
  #limit;

  constructor(store, limit) {
    this.#store = store;
    this.#limit = limit;
  }

  /** Returns a handle of any kind, as the steps use it. */
  lock({ locker: by, name, kind = "lock", weight, ...options }) {
    const locker = this.lockers.get(by);
    if (kind === "lock") {
      return locker.lock(name, options);
    }
    if (kind === "reader" || kind === "writer") {
      const both = locker.rwLock(name, options);
      const side = kind === "reader" ? both.read() : both.write();
      const tryAcquire = () => side.tryAcquire();
      return { acquire: (asked) => side.acquire(asked), tryAcquire, events: () => both.events() };
    }
    const { slots, units, all, allAtOnce } = kind;
    if (all !== undefined || allAtOnce !== undefined) {
      return all === undefined ? locker.allAtOnce(allAtOnce, options) : locker.all(all, options);
    }
    const semaphore =
      slots === undefined ? locker.quota(name, units, options) : locker.semaphore(name, slots, options);
    return {
      acquire: (asked) => semaphore.acquire({ ...asked, weight }),
      tryAcquire: () => semaphore.tryAcquire({ weight }),
      events: () => semaphore.events(),
      resize: (capacity) => semaphore.resize(capacity),
    };
  }

  async step({ do: act, error: code, says = [], ...fields }) {
    let refused;
    try {
      // The acts have the time limit, too, and say more when they reach it.
      await this.within(this[act](fields), `the end of ${act}`, this.#limit + 2_000);
    } catch (error) {
      if (code === undefined || !(error instanceof LeaseholdError)) {
        throw error;
      }
      refused = error;
    }
    assert.equal(refused?.code, code, `${act}: ${refused?.message ?? "it did not fail"}`);
    for (const text of says) {
      assert.ok(refused.message.includes(text), `${refused.message} does not say ${text}`);
    }
  }

  async close() {
    for (const call of [...this.calls, ...this.requests]) {
      call.giveUp();
    }
    // Leftovers of a scenario must not keep the process alive.
    await Promise.all([...this.lockers].map((locker) => locker.shutdown()));
  }

  async tryAcquire({ lock, as, result }) {
    this.#acquired(await this.locks.get(lock).tryAcquire(), as, result);
  }

  async acquireWithin({ lock, ms, as, result }) {
    this.#acquired(await acquire(this.locks.get(lock), { timeout: ms }), as, result);
  }

  async acquire({ lock, as, result }) {
    this.#acquired(await this.locks.get(lock).acquire(), as, result);
  }

  async begin({ lock, as, ms }) {
    const controller = new AbortController();
    const answer = acquire(this.locks.get(lock), { signal: controller.signal, timeout: ms });
    const call = { answer, answered: false, giveUp: () => controller.abort(GIVEN_UP) };
    const answered = () => (call.answered = true);
    answer.then(answered, answered);
    this.calls.add(as, call);
  }

  async end({ call, as, result }) {
    const answer = await this.within(this.calls.take(call).answer, `an answer to ${call}`);
    this.#acquired(answer, as, result);
  }

  async pending({ calls }) {
    await pause(50);
    for (const call of calls) {
      assert.ok(!this.calls.get(call).answered, `the call ${call} was answered`);
    }
  }

  async abort({ call: name }) {
    const call = this.calls.take(name);
    call.giveUp();
    const answer = await call.answer.catch((error) => error);
    assert.equal(answer, GIVEN_UP, `the call ${name} was answered before`);
  }

  async release({ lease: name, names }) {
    const lease = this.leases.get(name);
    const released = (await lease.release()) ?? [lease.name];
    assert.deepEqual(released, names ?? released, "what was released");
  }

  async resize({ lock, capacity, epoch }) {
    const is = await this.locks.get(lock).resize(capacity);
    assert.equal(is, epoch ?? is, "the epoch");
  }

  async downgrade({ lease }) {
    await this.leases.get(lease).downgrade();
  }

  async permit({ lease: name, generation, ...expected }) {
    const lease = this.leases.get(name);
    for (const [field, value] of Object.entries(expected)) {
      assert.deepEqual(lease[field], value, field);
    }
    assert.equal(lease.slot, lease.slots[0], "the first slot");
    if (generation !== undefined) {
      const token = generation === null ? undefined : this.kept.token(generation);
      assert.equal(lease.generation, token, "the last writer's token");
    }
  }

  async renew({ lease, ttl }) {
    await this.leases.get(lease).renew(ttl === undefined ? undefined : { ttl });
  }

  async pass({ lease, as }) {
    this.tickets.add(as, String(await this.leases.get(lease).pass()));
  }

  async accept({ locker, lock, ticket, text, as }) {
    assert.ok((ticket === undefined) !== (text === undefined), "accept takes a ticket or a text");
    assert.ok((locker === undefined) !== (lock === undefined), "a locker or a lock accepts");
    const by = locker === undefined ? this.locks.get(lock) : this.lockers.get(locker);
    this.#acquired(await by.accept(text ?? this.tickets.get(ticket)), as);
  }

  async held({ lock, held }) {
    assert.equal(this.locks.get(lock).held, held);
  }

  async lease({ lease: name, valid, remaining, holdCount }) {
    const lease = this.leases.get(name);
    assert.equal(lease.valid, valid ?? lease.valid);
    assert.equal(lease.holdCount, holdCount ?? lease.holdCount);
    if (remaining !== undefined) {
      expectWithin("what remains", lease.remaining, remaining);
    }
  }

  async lost({ lease: name, reason, name: lost }) {
    const lease = this.leases.get(name);
    const { signal } = lease;
    const aborted = new Promise((resolve) => {
      signal.addEventListener("abort", resolve, { once: true });
      if (signal.aborted) resolve();
    });
    await this.within(aborted, "the loss");
    assert.ok(signal.reason instanceof LeaseLostError);
    const told = { reason: signal.reason.reason, valid: lease.valid, remaining: lease.remaining };
    assert.deepEqual(told, { reason, valid: false, remaining: 0 });
    assert.equal(signal.reason.lock, lost ?? signal.reason.lock, "the name");
  }

  async run({ lease: name, reason }) {
    const lease = this.leases.get(name);
    if (reason === undefined) {
      assert.equal(await lease.run(async () => 42), 42);
      return;
    }
    const never = new Promise(() => {});
    const stopped = lease.run(() => never).catch((error) => error);
    const error = await this.within(stopped, "the end of the work");
    assert.ok(error instanceof LeaseLostError, `${error}`);
    assert.equal(error.reason, reason);
  }

  async tokens({ rising = [], equal = [], are = {} }) {
    this.#ordered(rising, "less than", (one, next) => one < next);
    this.#ordered(equal, "equal to", (one, next) => one === next);
    for (const [lease, token] of Object.entries(are)) {
      assert.equal(this.kept.token(lease), token, `the token of ${lease}`);
    }
  }

  async inspect({ locker, name, ...expected }) {
    await this.#until(async () => {
      const seen = await this.lockers.get(locker).inspect(name);
      return () => this.#isInspection(seen, expected);
    });
  }

  async list({ locker, pattern, names = [] }) {
    const listed = new Set();
    for await (const name of this.lockers.get(locker).list(pattern)) {
      listed.add(name);
    }
    assert.deepEqual([...listed].sort(), [...names].sort());
  }

  async forceRelease({ locker, name, holder }) {
    const freed = await this.lockers.get(locker).forceRelease(name);
    this.#isHolder(freed ?? null, holder);
  }

  async requestYield({ locker, name, within: time, force, as }) {
    const controller = new AbortController();
    const { signal } = controller;
    const answer = this.lockers.get(locker).requestYield(name, { within: time, force, signal });
    answer.catch(() => {});
    this.requests.add(as, { answer, giveUp: () => controller.abort(GIVEN_UP) });
  }

  async yielded({ request, is }) {
    const { answer } = this.requests.take(request);
    assert.equal(await this.within(answer, `the end of ${request}`), is, "whether it yielded");
  }

  async wanted({ lease }) {
    await this.leases.get(lease).wanted();
  }

  async stats({ locker, is }) {
    await this.#until(async () => {
      const stats = this.lockers.get(locker).stats();
      return () => has(stats, is, "stats");
    });
  }

  async shutdown({ locker }) {
    await this.lockers.get(locker).shutdown();
  }

  async events({ lock, locker, as }) {
    assert.ok((lock === undefined) !== (locker === undefined), "events are of a lock or of a locker");
    const of = lock === undefined ? this.lockers.get(locker) : this.locks.get(lock);
    this.readers.add(as, of.events());
  }

  async told({ events, expect = [], ends = false }) {
    for (const expected of expect) {
      const event = await this.#nextEvent(events, expected.type);
      assert.ok(event, `no ${expected.type} came: it ended`);
      const { error, ...fields } = event;
      const told = { ...fields, code: error?.code };
      for (const [field, value] of Object.entries(expected)) {
        const wanted = field === "token" ? this.kept.token(value) : value;
        assert.equal(told[field], wanted, `${field} of ${JSON.stringify(event)}`);
      }
    }
    if (ends) {
      const event = await this.#nextEvent(events);
      assert.equal(event, undefined, `it does not end: ${JSON.stringify(event)}`);
    }
  }

  async hold({ lock, as }) {
    this.holds.add(as, this.locks.get(lock).hold());
  }

  async next({ tenures, as, ends = false }) {
    const { done, value } = await this.within(this.holds.get(tenures).next(), "the next lease");
    assert.equal(done, ends, "whether it ends");
    if (!done) {
      this.#keep(as, value);
    }
  }

  async badLocker(options) {
    await this.#store.locker(options);
  }

  async badLock(spec) {
    await this.lock(spec).tryAcquire();
  }

  async subscribed({ count }) {
    // In memory this is part of the first acquisition.
    if (this.#store.command !== undefined) {
      await this.#until(async () => {
        const channels = await this.#store.command(["PUBSUB", "CHANNELS", "leasehold:*"]);
        return () => assert.equal(channels.length, count, "who is subscribed");
      });
    }
  }

  async pause({ ms }) {
    await pause(ms);
  }

  async cutOff({ server }) {
    this.#store.cutOff(server);
  }

  async redis({ command, reply }) {
    const words = command.map((word) => this.kept.fill(word));
    const ask = async () => {
      const is = await this.#store.command(words).catch((error) => error);
      const sorted = words[0] === "KEYS" ? is.sort() : is;
      return () => expectReply(this.kept, sorted, reply);
    };
    await (READS.has(words[0]) ? this.#until(ask) : ask().then((check) => check()));
  }

  /** Resolves to the promise's result, within the time limit. */
  async within(promise, what, limit = this.#limit) {
    return within(promise, limit, what);
  }

  /** Asks until the answer passes the check. */
  async #until(ask) {
    const end = awake() + this.#limit;
    for (;;) {
      const check = await ask();
      try {
        return check();
      } catch (error) {
        if (awake() >= end) {
          throw error;
        }
      }
      await pause(5);
    }
  }

  #acquired(lease, as, result = "held") {
    assert.equal(lease === undefined ? "busy" : "held", result);
    if (lease !== undefined) {
      this.#keep(as, lease);
    }
  }

  #keep(as = Symbol("no name"), lease) {
    if (lease.tokens === undefined) {
      this.kept.add(as, lease.token);
    } else {
      lease.tokens.forEach((token, name) => this.kept.add(`${String(as)} ${name}`, token));
    }
    this.leases.add(as, lease);
  }

  #ordered(leases, word, is) {
    const tokens = leases.map((lease) => this.kept.token(lease));
    tokens.slice(1).forEach((next, at) => {
      assert.ok(is(tokens[at], next), `the token ${tokens[at]} of ${leases[at]} is not ${word} ${next}`);
    });
  }

  #isInspection(seen, { holder, lastToken, waiting, line, wanted, shared }) {
    this.#isHolder(seen.holder, holder);
    isShared(seen.shared, shared);
    if (lastToken !== undefined) {
      assert.equal(seen.lastToken, lastToken && this.kept.token(lastToken), "the last token");
    }
    if (line !== undefined) {
      assert.deepEqual(seen.line.map(({ owner }) => owner.label), line);
    }
    if (wanted !== undefined) {
      assert.equal(seen.wanted?.by ?? null, wanted, "who wants it");
    }
    assert.equal(seen.waiting, waiting ?? seen.waiting, "how many wait");
  }

  #isHolder(is, expected) {
    if (expected === undefined) {
      return;
    }
    if (expected === null || is === null) {
      assert.equal(is, expected, "the holder");
      return;
    }
    const { token, label = is.owner.label, reclaimable = is.owner.reclaimable, remaining } = expected;
    assert.equal(is.token, token === undefined ? is.token : this.kept.token(token), "the holder's token");
    assert.deepEqual(is.owner, { label, reclaimable });
    if (remaining !== undefined) {
      expectWithin("what remains", is.remaining, remaining);
    }
  }

  /** Returns the next event. It skips events that may come at any time, unless one of them is expected. */
  async #nextEvent(name, expected) {
    const reader = this.readers.get(name);
    const end = awake() + this.#limit;
    for (;;) {
      const { value } = await this.within(reader.next(), "the next event", end - awake());
      if (!AT_ANY_TIME.has(value?.type) || value.type === expected) {
        return value;
      }
    }
  }
}

/** Objects that a scenario refers to by name. */
class Named {
  #what;
  #all = new Map();

  constructor(what) {
    this.#what = what;
  }

  add(name, value) {
    this.#all.set(name, value);
  }

  get(name) {
    assert.ok(this.#all.has(name), `there is no ${this.#what} ${name}`);
    return this.#all.get(name);
  }

  take(name) {
    const value = this.get(name);
    this.#all.delete(name);
    return value;
  }

  [Symbol.iterator]() {
    return this.#all.values();
  }
}

const GIVEN_UP = new Error("given up");

const AT_ANY_TIME = new Set(["renewed", "atRisk"]);

const READS = new Set(["EXISTS", "HGET", "HGETALL", "KEYS", "PTTL", "PUBSUB", "TYPE", "ZRANGE"]);

/** Acquires a lock. Resolves to `undefined` if another holder kept it for the whole timeout. */
async function acquire(lock, options) {
  try {
    return await lock.acquire(options);
  } catch (error) {
    const busy = error.code === "timeout" && /(another holder|other holders) kept it/.test(error.message);
    if (busy) {
      return undefined;
    }
    throw error;
  }
}

/** Checks the state of a shared name: `null` if it is not shared. */
function isShared(is, expected) {
  if (expected === undefined) {
    return;
  }
  if (expected === null || is === undefined) {
    assert.equal(is ?? null, expected, "the shared name");
    return;
  }
  const { capacity = is.capacity, used = is.used, by } = expected;
  assert.deepEqual([is.capacity, is.used], [capacity, used], "the capacity and what is held");
  const labels = is.holders.map((permit) => permit.by).sort();
  assert.deepEqual(labels, by ?? labels, "the holders");
}

function expectWithin(what, is, [least, most]) {
  assert.ok(is !== null && least <= is && is <= most, `${what} is ${is}, not within ${least} to ${most}`);
}

/** Checks these numbers. Numbers that are not named do not matter. */
function has(numbers, expected, what) {
  if (typeof expected === "number") {
    assert.equal(numbers, expected, what);
    return;
  }
  for (const [name, number] of Object.entries(expected)) {
    has(numbers?.[name], number, `${what}.${name}`);
  }
}
