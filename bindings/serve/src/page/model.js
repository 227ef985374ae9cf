// The state of the page. Times of the store are converted to the clock of this page as they arrive.

const now = () => performance.now();

/** The most entries that are kept of the lock whose page is open, and of the feed. */
const MOST_TENURES = 1000;
const MOST_LENGTHS = 2000;
const MOST_EVENTS = 500;
/** Half an hour: the server keeps as much. */
const KEPT = 1_800_000;

const model = {
  rows: new Map(),
  /** The history of the lock whose page is open. */
  history: undefined,
  /** The events of all locks, the newest first. */
  feed: [],
  /** The counts, each with its time. */
  samples: [],
  findings: undefined,
  sum: undefined,
  about: undefined,
  view: undefined,
  ready: false,
  /** Changes with the set of names. */
  version: 0,
  /** The time from which on the server remembers. */
  began: now(),
};

function takeHello(hello) {
  model.about = hello;
  model.view = hello.view;
  model.rows.clear();
  model.history = undefined;
  model.ready = false;
  model.version += 1;
}

function takeRow(row) {
  const at = now();
  const before = model.rows.get(row.name);
  if (!before || !before.job !== !row.job) model.version += 1;
  const holder = row.holder && {
    token: row.holder.token,
    owner: plain(row.holder.owner.label),
    reclaimable: row.holder.owner.reclaimable,
    tick: row.holder.owner.tick,
    until: at + row.holder.remaining,
    fullest: Math.max(row.holder.fullest, 1),
    since: row.holder.held === null ? undefined : at - row.holder.held,
    renewed: row.holder.renewed === null ? undefined : at - row.holder.renewed,
  };
  const line = row.line.map((waiter) => ({ owner: plain(waiter.owner.label), since: at - waiter.waited }));
  const wanted = row.wanted && { by: plain(row.wanted.by), until: at + row.wanted.remaining };
  const key = row.name.toLowerCase();
  const job = row.job && jobOf(row.job, at);
  const shown = before?.shown ?? plain(row.name);
  const looked = row.age === null ? undefined : at - row.age;
  const shared = row.shared && sharedOf(row.shared, looked ?? at);
  const { name, waiting, lastToken, trouble } = row;
  model.rows.set(name, { name, shown, key, holder, waiting, line, wanted, job, shared, lastToken, looked, trouble });
  if (looked === undefined) return;
  const { history } = model;
  if (history?.name === name) noteRow(history, model.rows.get(name), at);
}

/** Converts the ticks of a job to the terms of this page. */
function jobOf({ completed, begun }, at) {
  if (completed === null) return { completed: undefined, begun };
  const { tick, token, by, ago, took } = completed;
  return { completed: { tick, token, by: plain(by), at: at - ago, took: took ?? undefined }, begun };
}

/** Converts what is held of a shared name to the terms of this page. */
function sharedOf({ sharing, capacity, held, holders, summary }, at) {
  const permits = holders.map(({ token, slots, weight, remaining, by }) => ({
    token,
    slots: slots ?? [],
    weight,
    owner: plain(by),
    until: at + remaining,
  }));
  return { sharing, capacity, held, permits, summary };
}

function takeGone(name) {
  if (model.rows.delete(name)) model.version += 1;
}

/** The history of one lock. New events are added to those that the server has kept. */
function historyOf(name) {
  if (model.history?.name === name) return model.history;
  const history = { name, tenures: [], lengths: [], events: [] };
  model.history = history;
  const row = model.rows.get(name);
  if (row?.looked !== undefined) noteRow(history, row, now());
  fetch(`api/history?name=${encodeURIComponent(name)}`)
    .then((response) => response.json())
    .then((kept) => {
      if (model.history !== history) return;
      takeHistory(history, kept);
      paint(true);
    })
    .catch(() => {});
  return history;
}

function takeHistory(history, kept) {
  const known = kept.events.map(eventOf);
  const later = history.events.filter((event) => !known.some((one) => one.kind === event.kind && one.token === event.token));
  const lengths = kept.lengths.map(([ago, length]) => ({ at: now() - ago, length }));
  const { tenures, lengths: live } = history;
  Object.assign(history, { tenures: [], lengths: [], events: [] });
  [...known, ...later.reverse()].forEach((event) => noteEvent(history, event));
  [...lengths, ...live].forEach(({ at, length }) => noteLength(history, at, length));
  const last = tenures.at(-1);
  if (last && !history.tenures.some((tenure) => tenure.token === last.token)) begin(history, last);
  history.tenures.sort((a, b) => a.from - b.from);
}

function noteRow(history, row, at) {
  noteHolder(history, row.holder, at);
  noteLength(history, at, row.waiting);
}

function noteLength(history, at, length) {
  const last = history.lengths.at(-1);
  if (last?.length === length) return;
  history.lengths.push({ at, length });
  if (history.lengths.length > MOST_LENGTHS) history.lengths.shift();
}

/** Adds a tenure without an event of its beginning: it began before the server observed the lock. */
function noteHolder(history, holder, at) {
  const last = history.tenures.at(-1);
  if (!holder || last?.token === holder.token) return;
  if (last && last.to === undefined) Object.assign(last, { to: at, end: "ended" });
  begin(history, { token: holder.token, owner: holder.owner, from: holder.since ?? at });
}

function begin(history, tenure) {
  history.tenures.push(tenure);
  if (history.tenures.length > MOST_TENURES) history.tenures.shift();
}

/** Converts an event of the server to the terms of this page. */
function eventOf({ name, kind, token, owner, ago, waited }) {
  return { name, at: now() - ago, kind, token, owner: plain(owner), waited };
}

function noteEvent(history, event) {
  const { at, kind, token, owner, waited } = event;
  const same = history.tenures.find((tenure) => tenure.token === token);
  if (kind === "acquired") {
    if (same) Object.assign(same, { from: at, waited });
    else begin(history, { token, owner, from: at, waited });
  } else if (same) Object.assign(same, { to: at, end: kind });
  else begin(history, { token, owner, from: Math.min(model.began, at), to: at, end: kind });
  history.events.unshift(event);
  if (history.events.length > MOST_EVENTS) history.events.pop();
}

function takeEvent(sent) {
  const event = eventOf(sent);
  model.feed.unshift(event);
  if (model.feed.length > MOST_EVENTS) model.feed.pop();
  if (model.history?.name === event.name) noteEvent(model.history, event);
}

function takeRecent(recent) {
  model.samples = recent.samples.map(([ago, ...counts]) => ({ at: now() - ago, counts }));
  model.began = model.samples[0]?.at ?? now();
  model.feed = recent.events.map(eventOf).reverse();
}

function takeDelta(delta) {
  // Events come first, so that no row has to guess what happened.
  delta.events.forEach(takeEvent);
  delta.rows.forEach(takeRow);
  delta.gone.forEach(takeGone);
}

function takeSum(sum) {
  model.sum = sum;
  const lost = END_ORDER.reduce((n, end, at) => n + (LOSSES.has(end) ? sum.counts.ends[at] : 0), 0);
  model.samples.push({ at: now(), counts: [sum.counts.acquired, sum.counts.handoffs, lost] });
  while (model.samples[0].at < now() - KEPT) model.samples.shift();
  model.began = Math.max(model.began, now() - KEPT);
}

/** The rates per second of the last `length` milliseconds, in steps. */
function rates(length) {
  const step = Math.max(length / 120, 900);
  const points = [];
  let before;
  for (const sample of model.samples) {
    if (sample.at < now() - length - step) continue;
    before ??= sample;
    const seconds = (sample.at - before.at) / 1000;
    if (seconds * 1000 < step) continue;
    const [acquired, handoffs, losses] = sample.counts.map((count, at) => (count - before.counts[at]) / seconds);
    points.push({ at: sample.at, acquired, handoffs, losses });
    before = sample;
  }
  return points;
}

/** The lock whose page is open, by the address. */
function opened() {
  const found = /^#\/lock\/(.+)$/.exec(location.hash);
  if (!found) return undefined;
  try {
    return decodeURIComponent(found[1]);
  } catch {
    return undefined;
  }
}

const linkTo = (name) => `#/lock/${encodeURIComponent(name)}`;
