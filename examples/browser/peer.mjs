// A client as the page knows it: by its reports, and by what its network carries.

import { short } from "./token.mjs";

const RUNNING = 0;
const PAUSED = 1;
/** The rate of a slow clock: a lease ends at the server before its holder's clock says that a renewal is due. */
const SLOW = 0.25;
/** How many milliseconds of history are kept: more than the timeline shows. */
const KEPT = 120_000;

export class Peer {
  /** `none`, `waiting`, `held` or `releasing`. */
  tenure = "none";
  /** The write under way: when the client checked its lease, when it sent the write, and when that arrived. */
  write;
  token;
  /** The time at which its lease ends unless it is renewed. */
  deadline = 0;
  paused = false;
  cutOff = false;
  slowed = false;
  note = "";
  /** The history for the timeline. A span that goes on has no `until`. */
  history = { leases: [], pauses: [], cuts: [], slows: [], crashes: [], writes: [] };

  #worker;
  #control;
  /** Messages that the network holds back while it is cut; they arrive late. */
  #held = [];
  #services;
  #onWrite;
  #denseTokens;

  /**
   * `services` answer the requests; `onWrite` is called with the outcome of each write. Dense tokens count 1, 2, 3, but
   * begin anew after a flush; others follow the server's clock.
   */
  constructor(name, services, onWrite, { denseTokens }) {
    this.name = name;
    this.#services = services;
    this.#onWrite = onWrite;
    this.#denseTokens = denseTokens;
    this.#start();
  }

  /** The actions that are possible now. */
  can(action) {
    const able = {
      acquire: !this.paused && this.tenure === "none",
      write: !this.paused && this.tenure === "held" && this.write === undefined,
      pause: true,
      cut: true,
      release: !this.paused && this.write === undefined && ["held", "waiting"].includes(this.tenure),
    };
    return able[action];
  }

  do(action) {
    if (!this.can(action)) return;
    if (action === "pause") this.#pause(!this.paused);
    else if (action === "cut") this.#cut(!this.cutOff);
    else this.#ask(action);
  }

  /** Lets its clock run at a quarter of its speed, or as others do. */
  slow(slowed) {
    this.slowed = slowed;
    this.#worker.postMessage({ kind: "slow", rate: slowed ? SLOW : 1 });
    mark(this.history.slows, slowed);
  }

  /** Ends its process without a word, and starts a new one. What it sent may still arrive. */
  crash() {
    if (this.paused) this.#pause(false);
    if (this.slowed) this.slow(false);
    this.#worker.terminate();
    const now = performance.now();
    this.history.crashes.push({ from: now, until: now });
    this.#end(this.deadline, now);
    if (this.write?.sent === undefined) this.history.writes = this.history.writes.filter((write) => write !== this.write);
    Object.assign(this, { write: undefined, note: "started anew" });
    this.#start();
  }

  /** Describes its activity in a few words. */
  status(now) {
    const where = [this.paused && "paused", this.cutOff && "cut off", this.slowed && "slow clock"].filter(Boolean).join(", ");
    const what = this.#doing(now);
    return where ? `${where}: ${what}` : what;
  }

  /** Forgets spans that have left the timeline. */
  forget(now) {
    const isKept = ({ until = now }) => until > now - KEPT;
    for (const [kind, spans] of Object.entries(this.history)) this.history[kind] = spans.filter(isKept);
  }

  #doing(now) {
    const left = (this.deadline - now) / 1_000;
    if (this.write?.sent) return `its write with token ${short(this.write.token)} is under way`;
    if (this.write?.from) {
      const valid = `looked, lease valid; writes with token ${short(this.write.token)}`;
      return left > 0 ? valid : "looked, then its lease ended; writes";
    }
    if (this.write) return "reads the document";
    if (this.tenure === "waiting") return "waits in line";
    if (this.tenure === "releasing") return "releases";
    if (this.tenure === "none") return this.note || "has no lease";
    return left > 0 ? `holds token ${short(this.token)}, ${left.toFixed(1)} s left` : "its lease is over; it does not know";
  }

  #start() {
    this.#worker = new Worker("client.mjs", { type: "module" });
    this.#control = new Int32Array(new SharedArrayBuffer(4));
    this.#worker.onmessage = ({ data, target }) => this.#receive(data, target);
    this.#worker.postMessage({ kind: "start", memory: this.#control, denseTokens: this.#denseTokens });
  }

  #ask(kind) {
    this.note = "";
    // So that the page does not ask twice before the client reports.
    if (kind === "write") this.write = {};
    if (kind === "acquire") this.tenure = "waiting";
    this.#worker.postMessage({ kind });
  }

  /** Pauses its thread at any point, with its engine, whose timers run on that thread. */
  #pause(paused) {
    this.paused = paused;
    Atomics.store(this.#control, 0, paused ? PAUSED : RUNNING);
    Atomics.notify(this.#control, 0);
    if (paused) this.#worker.postMessage({ kind: "pause" });
    mark(this.history.pauses, paused);
  }

  #cut(cutOff) {
    this.cutOff = cutOff;
    mark(this.history.cuts, cutOff);
    if (!cutOff) this.#held.splice(0).forEach((arrive) => arrive());
  }

  #carry(arrive) {
    if (this.cutOff) this.#held.push(arrive);
    else arrive();
  }

  /** Takes a message of a worker, which a crash may have ended since. */
  #receive(message, worker) {
    if (message.kind === "report") {
      if (worker === this.#worker) this.#hear(message);
      return;
    }
    const { id, to, request } = message;
    const shown = this.write;
    if (request.write && shown) shown.sent = performance.now();
    this.#carry(() => {
      const answer = to === "service" ? this.#serve(request, worker) : this.#store(request, shown);
      this.#carry(() => worker.postMessage({ kind: "reply", id, ...answer }));
    });
  }

  #serve({ keys, args, subscribe }, worker) {
    const { service } = this.#services;
    if (subscribe === undefined) return { reply: service.execute(keys, args) };
    service.subscribe(subscribe, (text) => this.#carry(() => worker.postMessage({ kind: "push", text })));
    return {};
  }

  #store({ token, read, write }, shown) {
    const { storage } = this.#services;
    const verdict = { peer: this, token };
    try {
      if (read) return { reply: storage.read(token) };
      Object.assign(verdict, storage.write(token, this.name, write));
      return {};
    } catch (error) {
      verdict.refused = error;
      return { error: error.message };
    } finally {
      if (write || verdict.refused) this.#arrived(verdict, shown);
    }
  }

  #arrived(verdict, shown) {
    const now = performance.now();
    const { refused, destroyed = [] } = verdict;
    const outcome = refused ? "refused" : destroyed.length > 0 ? "destroyed" : "accepted";
    if (shown?.sent) Object.assign(shown, { until: now, outcome });
    this.#onWrite({ ...verdict, outcome });
  }

  /** Ends its lease, of which it knew until then. */
  #end(until, believed) {
    this.tenure = "none";
    const lease = this.history.leases.at(-1);
    if (lease && lease.until === undefined) Object.assign(lease, { until, believed });
  }

  #hear({ state, token, remaining, reason, why }) {
    const now = performance.now();
    const lease = this.history.leases.at(-1);
    const heard = {
      waiting: () => (this.tenure = "waiting"),
      acquired: () => {
        Object.assign(this, { tenure: "held", token, deadline: now + remaining });
        this.history.leases.push({ from: now, token, deadline: this.deadline });
      },
      renewed: () => {
        this.deadline = now + remaining;
        if (lease) lease.deadline = this.deadline;
      },
      lost: () => {
        this.#end(Math.min(now, this.deadline), now);
        this.note = `lost its lease (${reason})`;
      },
      releasing: () => (this.tenure = "releasing"),
      released: () => this.#end(now, now),
      ended: () => {
        this.#end(now, now);
        this.note = why;
      },
      looked: () => {
        Object.assign(this.write, { from: now, token });
        this.history.writes.push(this.write);
      },
      gaveUp: () => {
        this.write = undefined;
        this.#onWrite({ peer: this, token, outcome: "gaveUp" });
      },
      written: () => (this.write = undefined),
      refused: () => (this.write = undefined),
    };
    heard[state]?.();
  }
}

/** Begins a span, or ends the one that goes on. */
function mark(spans, begins) {
  const now = performance.now();
  if (begins) spans.push({ from: now });
  else spans.at(-1).until = now;
}
