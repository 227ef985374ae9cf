// What comes from the command, what the page shows, and what keys do.

/** How often times go on, in milliseconds. */
const FRAME = 250;
const AGAIN = 2000;

let source;
let told = "";

function connect() {
  source = new EventSource("events");
  const on = (name, take) => source.addEventListener(name, (event) => take(JSON.parse(event.data)));
  on("hello", (hello) => {
    takeHello(hello);
    told = "";
    say(byId("store"), plain(hello.demo ? "demo" : hello.store));
    say(byId("namespace"), hello.demo ? "invented contenders, in memory" : `namespace ${plain(hello.namespace)}`);
  });
  on("rows", (rows) => {
    rows.forEach(takeRow);
    // The first are shown before the last have come.
    paint(table.shown.length === 0);
  });
  on("ready", () => {
    model.ready = true;
    paint(true);
    performance.mark("ready");
  });
  on("delta", (delta) => {
    takeDelta(delta);
    paint(false);
  });
  on("sum", (sum) => {
    takeSum(sum);
    showState();
    if (!byId("all").hidden) showSum();
  });
  source.onerror = () => {
    state("connecting", "reconnecting");
    banner("The command does not reply: what is shown is old. It is tried again.");
    // A browser gives up after an answer that is none.
    if (source.readyState === EventSource.CLOSED) {
      source.close();
      setTimeout(connect, AGAIN);
    }
  };
}

function state(kind, text) {
  const element = byId("state");
  element.dataset.state = kind;
  say(element, text);
}

function banner(text) {
  byId("banner").hidden = !text;
  say(byId("banner"), text ?? "");
}

function showState() {
  const sum = model.sums.at(-1);
  if (sum.store.state === "away") {
    state("away", "store away");
    banner(`The store is away, and is asked again; what is shown is old (${sum.store.error}).`);
    return;
  }
  state("live", sum.follows ? "live, followed" : "live");
  byId("state").title = sum.follows
    ? "the server says what changes"
    : "it is found out by looking, again and again";
  if (sum.unlisted) banner(`The locks cannot be listed: ${sum.unlisted}`);
  else if (sum.overflown) banner(`There are more locks than are looked at: ${number(model.rows.size)}.`);
  else banner();
}

function paint(force) {
  const name = opened();
  if (name === undefined) {
    order(force);
    showTable();
  } else showLock(name);
  tell(name);
}

/** Tells the command what is on the screen, so that it looks at that first. */
function tell(name) {
  if (!model.view || !model.ready) return;
  const names = name === undefined ? visible().map(([shown]) => shown) : [];
  const seen = { view: model.view, names: names.slice(0, 128), open: name ?? null };
  const text = JSON.stringify(seen);
  if (text === told) return;
  told = text;
  post("api/view", seen).then((error) => {
    if (error !== undefined) told = "";
  });
}

function route() {
  const name = opened();
  byId("all").hidden = name !== undefined;
  byId("one").hidden = name === undefined;
  document.title = name === undefined ? "Leasehold" : `${plain(name)} – Leasehold`;
  if (name === undefined) {
    paint(true);
    showSum();
    if (route.from !== undefined) table.pool.get(route.from)?.link.focus();
  } else {
    scrollTo(0, 0);
    paint(true);
    byId("name").focus({ preventScroll: true });
  }
  route.from = name;
}

function keys(event) {
  const { target, key } = event;
  if (byId("confirm").open) return;
  const typing = target.matches("input, select");
  if (key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    if (opened() !== undefined) {
      location.hash = "#/";
      route();
    }
    byId("search").focus();
  } else if (key === "Escape") {
    if (target.id === "search") search("");
    else if (opened() !== undefined) location.hash = "#/";
  } else if (!byId("all").hidden) steer(event);
}

function search(text) {
  byId("search").value = text;
  table.query = text;
  byId("scroll").scrollTop = 0;
  paint(true);
}

byId("search").addEventListener("input", (event) => search(event.target.value));
byId("sort").addEventListener("change", (event) => {
  table.order = event.target.value;
  paint(true);
});
byId("window").addEventListener("change", () => paint(true));
byId("scroll").addEventListener("scroll", () => requestAnimationFrame(() => paint(false)), { passive: true });
byId("ask").addEventListener("click", ask);
byId("cancel").addEventListener("click", () => byId("confirm").close());
byId("release").addEventListener("click", release);
document.addEventListener("keydown", keys);
addEventListener("hashchange", route);
addEventListener("resize", () => {
  paint(true);
  if (opened() === undefined) showSum();
});
setInterval(() => {
  if (!document.hidden) paint(false);
}, FRAME);

route();
connect();
