// The events of all locks, and the findings of the doctor.

/** The height of an item, as in style.css. */
const FEED_ITEM = 44;

function showFeed() {
  const list = byId("feed");
  // As many as fit beside the table, so that nothing else scrolls.
  const room = innerHeight - list.getBoundingClientRect().top - 28;
  const count = Math.min(Math.max(Math.floor(room / FEED_ITEM), 6), 40);
  fillFeed(list, model.feed.slice(0, count));
}

function fillFeed(list, events) {
  while (list.children.length > Math.max(events.length, 1)) list.lastChild.remove();
  while (list.children.length < Math.max(events.length, 1)) {
    const item = make("li");
    const link = make("a");
    link.append(make("bdi"));
    item.append(make("span", "when"), link, make("bdi", "what"));
    list.append(item);
  }
  [...list.children].forEach((item, at) => {
    const event = events[at];
    const [when, link, what] = item.children;
    const text = event ? happening(event) : "Nothing yet.";
    say(when, event ? clock(event.at) : "");
    say(link.firstChild, event ? plain(event.name) : "");
    const to = event ? linkTo(event.name) : "#/";
    if (link.getAttribute("href") !== to) link.setAttribute("href", to);
    link.hidden = !event;
    say(what, text);
    if (item.title !== text) item.title = text;
    const className = event ? `${event.kind}${LOSSES.has(event.kind) ? " loss" : ""}` : "";
    if (item.className !== className) item.className = className;
  });
}

const LEVELS = ["bad", "warning", "note", "good"];

function takeFindings(findings) {
  model.findings = findings;
  if (findings.length === 0) return;
  const ranked = [...findings].sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level));
  const counts = LEVELS.map((level) => [level, findings.filter((one) => one.level === level).length]);
  const words = counts.filter(([, count]) => count > 0).map(([level, count]) => {
    const many = count > 1 && (level === "warning" || level === "note") ? "s" : "";
    return `${count} ${level}${many}`;
  });
  say(byId("doctorSum"), `doctor: ${words.join(", ")}`);
  const [worst] = ranked;
  say(byId("doctorWorst"), worst.level === "good" ? "nothing to do" : `${worst.check}: ${plain(worst.what)}`);
  byId("doctor").dataset.level = worst.level;
  byId("findings").replaceChildren(...ranked.map(finding));
}

function finding({ check, level, what, so, do: advice }) {
  const item = make("li", level);
  item.append(make("b", "", `${level}: ${check}`), make("p", "", plain(what)));
  if (so) item.append(make("p", "dim", plain(so)));
  if (advice) item.append(make("p", "", `→ ${plain(advice)}`));
  return item;
}
