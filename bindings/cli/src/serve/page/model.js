// What is known of the locks. Times of the store's are turned into this page's clock as they come.

const now = () => performance.now();

/** How much is kept of the lock whose page is open, and of the feed. */
const MOST_TENURES = 1000;
const MOST_LENGTHS = 2000;
const MOST_EVENTS = 500;
/** Half an hour, as the command keeps it. */
const KEPT = 1_800_000;

const model = {
  rows: new Map(),
  /** Of the lock whose page is open. */
  history: undefined,
  /** What happened to all locks, the newest first. */
  feed: [],
  /** What had been counted when. */
  samples: [],
  findings: undefined,
  sum: undefined,
  about: undefined,
  view: undefined,
  ready: false,
  /** Grows when there is another set of names. */
  version: 0,
  /** Since when the command, or its memory, reaches back. */
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
  if (!before) model.version += 1;
  const holder = row.holder && {
    token: row.holder.token,
    owner: plain(row.holder.owner.label),
    reclaimable: row.holder.owner.reclaimable,
    until: at + row.holder.remaining,
    fullest: Math.max(row.holder.fullest, 1),
    since: row.holder.held === null ? undefined : at - row.holder.held,
    renewed: row.holder.renewed === null ? undefined : at - row.holder.renewed,
  };
  const line = row.line.map((waiter) => ({ owner: plain(waiter.owner.label), since: at - waiter.waited }));
  const key = row.name.toLowerCase();
  const shown = before?.shown ?? plain(row.name);
  const looked = row.age === null ? undefined : at - row.age;
  const { name, waiting, lastToken, trouble } = row;
  model.rows.set(name, { name, shown, key, holder, waiting, line, lastToken, looked, trouble });
  if (looked === undefined) return;
  const { history } = model;
  if (history?.name === name) noteRow(history, model.rows.get(name), at);
}

function takeGone(name) {
  if (model.rows.delete(name)) model.version += 1;
}

/** The past of one lock: what comes from now on is added to what the command has kept. */
function historyOf(name) {
  if (model.history?.name === name) return model.history;
  const history = { name, tenures: [], lengths: [], events: [] };
  model.history = history;
  const row = model.rows.get(name);
  if (row?.looked !== undefined) noteRow(history, row, now());
  fetch(`api/history?name=${encodeURIComponent(name)}`)
    .then((response) => response.json())
    .then((past) => {
      if (model.history !== history) return;
      takeHistory(history, past);
      paint(true);
    })
    .catch(() => {});
  return history;
}

function takeHistory(history, past) {
  const known = past.events.map(heard);
  const later = history.events.filter((event) => !known.some((one) => one.kind === event.kind && one.token === event.token));
  const lengths = past.lengths.map(([ago, length]) => ({ at: now() - ago, length }));
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

/** A tenure that is only seen to be there: it began before anybody watched. */
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

/** An event as it comes from the command, in this page's terms. */
function heard({ name, kind, token, owner, ago, waited }) {
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

function takeEvent(told) {
  const event = heard(told);
  model.feed.unshift(event);
  if (model.feed.length > MOST_EVENTS) model.feed.pop();
  if (model.history?.name === event.name) noteEvent(model.history, event);
}

function takePast(past) {
  model.samples = past.samples.map(([ago, ...counts]) => ({ at: now() - ago, counts }));
  model.began = model.samples[0]?.at ?? now();
  model.feed = past.events.map(heard).reverse();
}

function takeDelta(delta) {
  // Events first: then a row does not have to guess what happened.
  delta.events.forEach(takeEvent);
  delta.rows.forEach(takeRow);
  delta.gone.forEach(takeGone);
}

function takeSum(sum) {
  model.sum = sum;
  const lost = END_ORDER.reduce((n, end, at) => n + (LOSSES.has(end) ? sum.tally.ends[at] : 0), 0);
  model.samples.push({ at: now(), counts: [sum.tally.acquired, sum.tally.handoffs, lost] });
  while (model.samples[0].at < now() - KEPT) model.samples.shift();
  model.began = Math.max(model.began, now() - KEPT);
}

/** What happened a second, in steps, from so long ago on. */
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

/** The lock whose page this is, by the address. */
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
