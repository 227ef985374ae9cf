// The table. Only rows on the screen are elements, so that it may have any number of rows.

const SPARE = 6;
const table = { shown: [], version: -1, query: "", order: "name", way: 1, pool: new Map(), sorted: 0, height: 0 };

/** For each column the value by which rows are sorted, and the direction at first. Rows without a value come last. */
const ORDERS = {
  name: [(row) => row.key, 1],
  holder: [(row) => row.holder?.owner.toLowerCase(), 1],
  held: [(row) => row.holder?.since && -row.holder.since, -1],
  lease: [(row) => row.holder?.until, 1],
  line: [(row) => row.waiting, -1],
};

/** Sorts by a column; a second call reverses the direction. */
function sortBy(by) {
  const [, first] = ORDERS[by];
  table.way = table.order === by ? -table.way : first;
  table.order = by;
  for (const button of byId("head").querySelectorAll("button")) {
    const cell = button.parentElement;
    if (button.dataset.sort !== by) cell.removeAttribute("aria-sort");
    else cell.setAttribute("aria-sort", table.way > 0 ? "ascending" : "descending");
  }
  paint(true);
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

function chosen() {
  const query = table.query.toLowerCase();
  const rows = [...model.rows.values()].filter((row) => !row.job);
  const has = (row) => row.key.includes(query) || row.holder?.owner.toLowerCase().includes(query);
  const found = query ? rows.filter(has) : rows;
  const [value] = ORDERS[table.order];
  const ranked = found.map((row) => [value(row), row]);
  ranked.sort(([x, a], [y, b]) => {
    const none = (x === undefined) - (y === undefined);
    return none || table.way * compare(x, y) || compare(a.key, b.key);
  });
  return ranked.map(([, row]) => row.name);
}

/** Sorts the rows: at once if the user asked for it or there are new names, otherwise once a second. */
function order(force) {
  const moving = table.order !== "name" || table.query;
  const late = now() - table.sorted > 1000;
  const anew = force || (table.version !== model.version && (late || model.rows.size < 500)) || (moving && late);
  if (!anew) return;
  table.version = model.version;
  table.sorted = now();
  table.shown = chosen();
  const count = table.shown.length;
  table.height = parseInt(getComputedStyle(document.documentElement).getPropertyValue("--row"), 10);
  byId("space").style.height = `${count * table.height}px`;
  byId("table").setAttribute("aria-rowcount", String(count + 1));
  const all = model.rows.size - jobs().length;
  say(byId("count"), count === all ? `${number(all)} ${all === 1 ? "lock" : "locks"}` : `${number(count)} of ${number(all)} locks`);
  const empty = byId("empty");
  empty.hidden = count > 0 || !model.ready;
  say(empty, all ? "No lock has that in its name or its holder's." : "No lock is held. Held locks appear here.");
}

/** Returns the rows on the screen. The whole page scrolls, and no part of it. */
function visible() {
  const top = -byId("space").getBoundingClientRect().top;
  const first = Math.max(0, Math.floor(top / table.height) - SPARE);
  const last = Math.max(0, Math.ceil((top + innerHeight) / table.height) + SPARE);
  return table.shown.slice(first, last).map((name, at) => [name, first + at]);
}

function showTable() {
  if (byId("all").hidden || table.height === 0) return;
  const wanted = visible();
  const names = new Set(wanted.map(([name]) => name));
  const spare = [];
  for (const [name, row] of table.pool) {
    if (names.has(name)) continue;
    table.pool.delete(name);
    // A row with the focus keeps it while it is in the table.
    spare.push(row);
  }
  for (const [name, at] of wanted) {
    let row = table.pool.get(name);
    if (!row) {
      row = spare.pop() ?? newRow();
      table.pool.set(name, row);
      row.link.href = linkTo(name);
    }
    if (row.at !== at) {
      row.at = at;
      row.element.style.transform = `translateY(${at * table.height}px)`;
      row.element.setAttribute("aria-rowindex", String(at + 2));
    }
    fill(row, model.rows.get(name));
  }
  spare.forEach((row) => row.element.remove());
}

function newRow() {
  const element = make("div", "row");
  element.setAttribute("role", "row");
  const cells = ["name", "holder", "since", "lease", "line"].map((kind) => {
    const cell = make("span", kind);
    cell.setAttribute("role", "cell");
    element.append(cell);
    return cell;
  });
  const [name, holder, held, lease, line] = cells;
  const link = make("a");
  const label = make("bdi", "text");
  link.append(label);
  name.append(link);
  const [owner, token] = [make("bdi", "text"), make("span", "token")];
  holder.append(owner, token);
  const meter = make("span", "meter");
  const bar = make("i");
  meter.append(bar);
  const [renewed, left] = [make("span", "renewed"), make("span", "until")];
  lease.append(meter, renewed, left);
  const [waiting, first] = [make("b"), make("bdi", "text")];
  line.append(waiting, " ", first);
  byId("space").append(element);
  return { element, link, label, owner, token, held, bar, renewed, left, waiting, first, at: -1 };
}

function fill(row, lock) {
  if (!lock) return;
  const { holder } = lock;
  const shared = lock.shared?.held > 0 ? lock.shared.summary : undefined;
  say(row.label, lock.shown);
  const state = lock.trouble ? "trouble" : lock.looked === undefined ? "unknown" : (holder ?? shared) ? "held" : "free";
  const className = `row ${state}`;
  if (row.element.className !== className) row.element.className = className;
  const words = { trouble: lock.trouble, unknown: "held, not inspected yet", free: "free" };
  say(row.owner, words[state] ?? holder?.owner ?? shared);
  say(row.token, holder ? String(holder.token) : "");
  say(row.held, holder?.since === undefined ? "" : span(now() - holder.since));
  meter(row.bar, holder);
  const [renewed, left] = holder ? renewal(holder) : ["", ""];
  say(row.renewed, renewed);
  say(row.left, left);
  say(row.waiting, lock.waiting > 0 ? number(lock.waiting) : "");
  say(row.first, request(lock) ?? (lock.waiting > 0 ? waiters(lock) : ""));
}

/** Returns who asks the holder to yield, and within which time; `undefined` if nobody does. */
function request({ wanted }) {
  const left = wanted === undefined ? 0 : wanted.until - now();
  return left > 0 ? `wanted by ${wanted.by} within ${span(left)}` : undefined;
}

/** Shows texts that are cut off whole while their row has the pointer or the focus. */
function reveal(event) {
  const row = event.target.closest(".row");
  for (const text of row?.querySelectorAll(".text") ?? []) {
    text.classList.remove("cut");
    text.classList.toggle("cut", text.scrollWidth > text.clientWidth);
  }
}

/** The first waiter, and how long it has waited. */
function waiters(lock) {
  const [first] = lock.line;
  return first ? `${span(now() - first.since)} ${first.owner}` : "";
}

function meter(bar, holder) {
  const left = holder ? Math.max(0, holder.until - now()) : 0;
  const part = holder ? Math.min(1, left / holder.fullest) : 0;
  const scale = `scaleX(${part.toFixed(3)})`;
  if (bar.style.transform !== scale) {
    // It shrinks smoothly, and grows at once: after a renewal, or for another holder.
    bar.style.transitionDuration = part > Number(bar.dataset.part ?? 0) ? "0s" : "";
    bar.dataset.part = part;
    bar.style.transform = scale;
  }
  const kind = holder ? (part > 0.35 ? "" : part > 0.12 ? "low" : "out") : "none";
  if (bar.className !== kind) bar.className = kind;
}

/** Moves the focus from row to row. */
function steer(event) {
  const links = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };
  const by = links[event.key];
  if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
  const current = [...table.pool.values()].find((row) => row.link === document.activeElement);
  if (!current && event.target.id !== "search") return;
  if (event.target.id === "search" && Math.abs(by) !== 1) return;
  event.preventDefault();
  const to = Math.min(Math.max((current?.at ?? -1) + by, 0), table.shown.length - 1);
  if (to < 0) return;
  const top = byId("space").getBoundingClientRect().top + to * table.height;
  const head = byId("head").offsetHeight;
  if (top < head) scrollBy(0, top - head);
  else if (top + table.height > innerHeight) scrollBy(0, top + table.height - innerHeight);
  showTable();
  table.pool.get(table.shown[to])?.link.focus({ preventScroll: true });
}
