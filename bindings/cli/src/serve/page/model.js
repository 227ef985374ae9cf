// What is known of the locks. Times of the store's are turned into this page's clock as they come.

const now = () => performance.now();

/** How many tenures and lengths of line are kept of a lock, and of how many locks. */
const MOST_TENURES = 200;
const MOST_LENGTHS = 400;
const MOST_EVENTS = 100;
const MOST_HISTORIES = 2000;
/** Two minutes, and one for the difference. */
const MOST_SUMS = 121;

const model = {
  rows: new Map(),
  histories: new Map(),
  sums: [],
  about: undefined,
  view: undefined,
  ready: false,
  /** Grows when there is another set of names. */
  version: 0,
  opened: now(),
};

function takeHello(hello) {
  model.about = hello;
  model.view = hello.view;
  model.rows.clear();
  model.sums = [];
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
  };
  const line = row.line.map((waiter) => ({ owner: plain(waiter.owner.label), since: at - waiter.waited }));
  const key = row.name.toLowerCase();
  const shown = before?.shown ?? plain(row.name);
  const looked = row.age === null ? undefined : at - row.age;
  const { name, waiting, lastToken, trouble } = row;
  model.rows.set(name, { name, shown, key, holder, waiting, line, lastToken, looked, trouble });
  if (looked === undefined) return;
  const history = model.histories.get(name);
  if (history) {
    noteLength(history, at, waiting);
    noteHolder(history, holder, at);
  } else if (holder || waiting > 0) {
    noteHolder(historyOf(name), holder, at);
    noteLength(historyOf(name), at, waiting);
  }
}

function takeGone(name) {
  if (model.rows.delete(name)) model.version += 1;
}

function historyOf(name) {
  let history = model.histories.get(name);
  if (!history) {
    // The oldest that no page is open of is forgotten.
    for (const other of model.histories.keys()) {
      if (model.histories.size < MOST_HISTORIES) break;
      if (other !== opened()) model.histories.delete(other);
    }
    history = { tenures: [], lengths: [], events: [] };
    model.histories.set(name, history);
  }
  return history;
}

function noteLength(history, at, length) {
  const last = history.lengths.at(-1);
  if (last?.length === length) return;
  history.lengths.push({ at, length });
  if (history.lengths.length > MOST_LENGTHS) history.lengths.shift();
}

/** A tenure that is only seen to be there: it began before the page was opened. */
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

function takeEvent(event) {
  const at = now() - event.ago;
  const history = historyOf(event.name);
  const owner = plain(event.owner);
  if (event.kind === "acquired") {
    const same = history.tenures.find((tenure) => tenure.token === event.token);
    if (same) Object.assign(same, { from: at, waited: event.waited });
    else begin(history, { token: event.token, owner, from: at, waited: event.waited });
  } else {
    const same = history.tenures.find((tenure) => tenure.token === event.token);
    if (same) Object.assign(same, { to: at, end: event.kind });
  }
  history.events.unshift({ at, kind: event.kind, token: event.token, owner, waited: event.waited });
  if (history.events.length > MOST_EVENTS) history.events.pop();
}

function takeDelta(delta) {
  // Events first: then a row does not have to guess what happened.
  delta.events.forEach(takeEvent);
  delta.rows.forEach(takeRow);
  delta.gone.forEach(takeGone);
}

function takeSum(sum) {
  model.sums.push({ ...sum, at: now() });
  if (model.sums.length > MOST_SUMS) model.sums.shift();
}

const losses = (sum) => END_ORDER.reduce((n, end, at) => n + (LOSSES.has(end) ? sum.tally.ends[at] : 0), 0);

/** What happened a second, between any two of the sums. */
function rates() {
  const { sums } = model;
  return sums.slice(1).map((sum, at) => {
    const before = sums[at];
    const seconds = Math.max((sum.at - before.at) / 1000, 0.1);
    const a = (sum.tally.acquired - before.tally.acquired) / seconds;
    const h = (sum.tally.handoffs - before.tally.handoffs) / seconds;
    const l = (losses(sum) - losses(before)) / seconds;
    return { at: sum.at, acquired: a, handoffs: h, losses: l };
  });
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
