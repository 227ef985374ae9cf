// The connection to the server, the views, and the keys.

/** How often times are repainted, in milliseconds. */
const FRAME = 250;
/** The pause before a new connection, in milliseconds. */
const RECONNECT = 2000;

let source;
let sent = "";

function connect() {
  source = new EventSource("events");
  const on = (name, take) => source.addEventListener(name, (event) => take(JSON.parse(event.data)));
  on("hello", (hello) => {
    takeHello(hello);
    sent = "";
    byId("doctor").hidden = !hello.findings;
    say(byId("store"), plain(hello.demo ? "demo" : hello.store));
    say(byId("namespace"), hello.demo ? "invented contenders, in memory" : `namespace ${plain(hello.namespace)}`);
  });
  on("recent", takeRecent);
  on("findings", takeFindings);
  on("rows", (rows) => {
    rows.forEach(takeRow);
    // The first rows are shown before the last arrive.
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
    banner("The server of this page does not reply; the page is out of date. Reconnecting.");
    // A browser gives up after a response that is no stream.
    if (source.readyState === EventSource.CLOSED) {
      source.close();
      setTimeout(connect, RECONNECT);
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
  const { sum } = model;
  if (sum.store.state === "away") {
    state("away", "store away");
    banner(`The store cannot be reached; this page is out of date. Retrying (${sum.store.error}).`);
    return;
  }
  state("live", sum.follows ? "live, followed" : "live");
  byId("state").title = sum.follows
    ? "the server reports which locks change"
    : "changes are found by polling";
  if (sum.unlisted) banner(`The locks cannot be listed: ${sum.unlisted}`);
  else if (sum.overflown) banner(`There are more locks than this page follows: it shows ${number(model.rows.size)}.`);
  else banner();
}

/** The name of the view that is open. */
function shownView() {
  if (opened() !== undefined) return "one";
  return { "#/events": "happened", "#/jobs": "work" }[location.hash] ?? "all";
}

function paint(force) {
  const view = shownView();
  if (view === "all") {
    order(force);
    showTable();
    showFeed();
  } else if (view === "one") showLock(opened());
  else if (view === "work") showJobs();
  else fillFeed(byId("allEvents"), model.feed);
  sendView(opened());
}

/** Tells the server what is on the screen, so that it inspects that first. */
function sendView(name) {
  if (!model.view || !model.ready) return;
  const names = { all: () => visible().map(([shown]) => shown), work: () => shownJobs().map((job) => job.name) };
  const shown = names[shownView()]?.() ?? [];
  const view = { view: model.view, names: shown.slice(0, 128), open: name ?? null };
  const text = JSON.stringify(view);
  if (text === sent) return;
  sent = text;
  post("api/view", view).then((error) => {
    if (error !== undefined) sent = "";
  });
}

function route() {
  const [view, name] = [shownView(), opened()];
  if (!byId("all").hidden) route.scroll = scrollY;
  for (const id of ["all", "work", "one", "happened"]) byId(id).hidden = id !== view;
  for (const id of ["all", "work"]) byId(`to-${id}`).setAttribute("aria-current", id === view ? "page" : "false");
  const title = { all: "", work: "Jobs – ", one: `${plain(name)} – `, happened: "What happened – " };
  document.title = `${title[view]}Leasehold`;
  if (view === "all") {
    scrollTo(0, route.scroll ?? 0);
    paint(true);
    showSum();
    if (route.from !== undefined) table.pool.get(route.from)?.link.focus({ preventScroll: true });
  } else {
    scrollTo(0, 0);
    paint(true);
    byId({ one: "name", work: "workTitle", happened: "happenedTitle" }[view]).focus({ preventScroll: true });
  }
  route.from = name;
}

function keys(event) {
  const { target, key } = event;
  if (byId("confirm").open) return;
  const typing = target.matches("input, select");
  if (key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    if (shownView() !== "all") {
      location.hash = "#/";
      route();
    }
    byId("search").focus();
  } else if (key === "Escape") {
    if (target.id === "search") search("");
    else if (shownView() !== "all") location.hash = "#/";
  } else if (!byId("all").hidden) steer(event);
}

function search(text) {
  byId("search").value = text;
  table.query = text;
  paint(true);
}

byId("search").addEventListener("input", (event) => search(event.target.value));
byId("searchJobs").addEventListener("input", () => paint(true));
byId("head").addEventListener("click", (event) => {
  const by = event.target.dataset.sort;
  if (by) sortBy(by);
});
byId("ratesSpan").addEventListener("change", showSum);
for (const kind of ["pointerover", "focusin"]) byId("space").addEventListener(kind, reveal);
byId("window").addEventListener("change", () => paint(true));
addEventListener("scroll", () => requestAnimationFrame(() => paint(false)), { passive: true });
byId("ask").addEventListener("click", ask);
byId("cancel").addEventListener("click", () => byId("confirm").close());
byId("release").addEventListener("click", release);
document.addEventListener("keydown", keys);
addEventListener("hashchange", route);
addEventListener("resize", () => {
  paint(true);
  if (shownView() === "all") showSum();
});
setInterval(() => {
  if (!document.hidden) paint(false);
}, FRAME);

route();
connect();
