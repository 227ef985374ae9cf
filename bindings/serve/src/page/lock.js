// The page of one lock.

const HUES = [215, 160, 275, 35, 330, 190, 95, 250, 10, 300, 60, 130];

function hue(owner) {
  let hash = 7;
  for (const c of owner) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
  // Names that differ in one letter should differ in color.
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  hash = Math.imul(hash ^ (hash >>> 12), 0x297a2d39);
  return HUES[((hash ^ (hash >>> 15)) >>> 0) % HUES.length];
}

function showLock(name) {
  const lock = model.rows.get(name);
  const holder = lock?.holder;
  const known = lock && lock.looked !== undefined;
  say(byId("name"), plain(name));
  // The capacity of a semaphore or quota is shown even if nobody has a part of it.
  const { held = 0, sharing, summary } = lock?.shared ?? {};
  const shared = held > 0 || sharing !== "access" ? summary : undefined;
  say(byId("oneHolder"), lock?.trouble ?? holder?.owner ?? shared ?? (known ? "free" : "–"));
  byId("oneHolder").title = holder?.reclaimable ? "an owner, which may take the lock over" : "";
  say(byId("oneToken"), holder ? String(holder.token) : lock?.lastToken ? `last ${lock.lastToken}` : "–");
  say(byId("oneHeld"), holder?.since === undefined ? "–" : span(now() - holder.since));
  meter(byId("oneBar"), holder);
  const [renewed, left] = holder ? renewal(holder) : ["–", "\u00a0"];
  say(byId("oneRenewed"), renewed);
  say(byId("oneLeft"), left);
  say(byId("oneWaiting"), known ? number(lock.waiting) : "–");
  say(byId("oneWanted"), (known && request(lock)) || "\u00a0");
  const ask = byId("ask");
  ask.hidden = !model.about?.release;
  ask.disabled = !holder;
  const history = historyOf(name);
  drawTimeline(history);
  showShared(lock?.shared);
  showLine(lock);
  showEvents(history);
}

function items(list, count) {
  while (list.children.length > count) list.lastChild.remove();
  while (list.children.length < count) {
    const item = make("li");
    item.append(make("span"), make("bdi"), make("span"));
    list.append(item);
  }
  return [...list.children];
}

function fillItem(item, [first, middle, last], className) {
  const [a, b, c] = item.children;
  say(a, first);
  say(b, middle);
  b.title = middle;
  say(c, last);
  if (item.className !== className) item.className = className;
}

/** The most slots that are drawn as boxes. */
const MOST_BOXES = 200;

/** Shows the slots as a row of boxes, and who holds what. */
function showShared(shared) {
  byId("oneShared").hidden = !shared;
  if (!shared) return;
  const { sharing, capacity, permits } = shared;
  const holders = new Map(permits.flatMap((permit) => permit.slots.map((slot) => [slot, permit])));
  const boxes = byId("slots");
  const count = sharing === "slots" ? Math.min(Math.max(capacity, ...holders.keys(), 0), MOST_BOXES) : 0;
  boxes.parentElement.hidden = count === 0;
  while (boxes.children.length > count) boxes.lastChild.remove();
  while (boxes.children.length < count) boxes.append(make("li"));
  [...boxes.children].forEach((box, slot) => {
    const permit = holders.get(slot);
    say(box, String(slot));
    box.className = permit ? "taken" : "";
    box.title = permit ? `slot ${slot}: ${permit.owner}, token ${permit.token}` : `slot ${slot} is free`;
  });
  const list = items(byId("permits"), Math.max(permits.length, 1));
  permits.forEach((permit, at) => {
    const part = permit.slots.join(", ") || (sharing === "units" ? number(permit.weight) : "");
    fillItem(list[at], [part, permit.owner, span(Math.max(permit.until - now(), 0))], "");
  });
  if (permits.length === 0) fillItem(list[0], ["", "Nobody has a part of it.", ""], "");
}

function showLine(lock) {
  const line = lock?.line ?? [];
  const more = (lock?.waiting ?? 0) - line.length;
  const list = items(byId("line"), Math.max(line.length + (more > 0 ? 1 : 0), 1));
  line.forEach((waiter, at) => {
    fillItem(list[at], [`${at + 1}.`, waiter.owner, span(now() - waiter.since)], "");
  });
  if (more > 0) fillItem(list[line.length], ["…", `${number(more)} more`, ""], "");
  else if (line.length === 0) fillItem(list[0], ["", "Nobody waits.", ""], "");
}

function showEvents(history) {
  const { events } = history;
  const list = items(byId("events"), Math.max(events.length, 1));
  if (events.length === 0) fillItem(list[0], ["", "Nothing yet.", ""], "");
  events.forEach((event, at) => {
    fillItem(list[at], [clock(event.at), happening(event), String(event.token)], LOSSES.has(event.kind) ? "loss" : "");
  });
}

function drawTimeline(history) {
  const svg = byId("timeline");
  const [width, height] = sized(svg);
  if (width === 0) return;
  const length = Number(byId("window").value) * 1000;
  const end = now();
  const begin = end - length;
  const x = (at) => ((at - begin) / length) * width;
  const parts = ticks(width, height, length);
  const lane = { top: 6, tall: 44 };
  for (const tenure of history.tenures) {
    const to = tenure.to ?? end;
    if (to >= begin) parts.push(...drawTenure(tenure, [Math.max(x(tenure.from), 0), x(to)], lane));
  }
  parts.push(...drawLengths(history.lengths, x, [70, height - 20], [begin, end]));
  const unseen = x(model.began);
  if (unseen > 0) {
    parts.push(draw("line", { class: "grid", x1: unseen, x2: unseen, y1: 0, y2: height - 16, "stroke-dasharray": "3 3" }));
  }
  svg.replaceChildren(...parts);
}

function ticks(width, height, length) {
  const parts = [];
  const count = width < 500 ? 4 : 6;
  for (let at = 0; at <= count; at += 1) {
    const x = (width * at) / count;
    const ago = length - (length * at) / count;
    const anchor = at === 0 ? "start" : at === count ? "end" : "middle";
    parts.push(draw("line", { class: "grid", x1: x, x2: x, y1: 0, y2: height - 16 }));
    parts.push(draw("text", { x, y: height - 3, "text-anchor": anchor }, ago === 0 ? "now" : `−${span(ago)}`));
  }
  return parts;
}

function drawTenure(tenure, [from, to], { top, tall }) {
  const wide = Math.max(to - from, 1.5);
  const color = `hsl(${hue(tenure.owner)} 48% 36%)`;
  const box = draw("rect", { x: from, y: top, width: Math.max(wide - 1, 1), height: tall, rx: 3, fill: color });
  const ended = tenure.end ? `, ${ENDS[tenure.end]}` : "";
  const waited = tenure.waited === undefined ? "" : `, waited ${span(tenure.waited)}`;
  box.append(draw("title", {}, `${tenure.owner}, token ${tenure.token}${waited}${ended}`));
  const parts = [box];
  if (wide > 60) {
    const most = Math.floor((wide - 26) / 6.6);
    const label = tenure.owner.length > most ? `${tenure.owner.slice(0, Math.max(most - 1, 1))}…` : tenure.owner;
    parts.push(draw("text", { class: "on", x: from + 12, y: top + tall / 2 + 4 }, label));
  }
  if (tenure.waited !== undefined) {
    const y = top + tall / 2;
    parts.push(draw("path", { class: "into handoff", d: `M${from - 4} ${y - 7}l9 7l-9 7z` }));
  }
  if (LOSSES.has(tenure.end)) {
    const y = top + tall + 8;
    parts.push(draw("path", { class: "stroke loss", d: `M${to - 4} ${y - 4}l8 8m0 -8l-8 8` }));
  }
  return parts;
}

/** Draws the length of the line over time, in steps. */
function drawLengths(lengths, x, [top, foot], [begin, end]) {
  const shown = lengths.filter((one, at) => (lengths[at + 1]?.at ?? end) >= begin);
  const longest = Math.max(0, ...shown.map((one) => one.length));
  const most = Math.max(1, longest);
  const y = (length) => foot - (length / most) * (foot - top - 12);
  const points = [];
  lengths.forEach((one, at) => {
    const to = lengths[at + 1]?.at ?? end;
    if (to < begin) return;
    points.push(`${x(Math.max(one.at, begin)).toFixed(1)},${y(one.length).toFixed(1)}`, `${x(to).toFixed(1)},${y(one.length).toFixed(1)}`);
  });
  if (points.length === 0) return [];
  const first = points[0].split(",")[0];
  const last = points.at(-1).split(",")[0];
  return [
    draw("polygon", { class: "area line", points: [`${first},${foot}`, ...points, `${last},${foot}`].join(" ") }),
    draw("polyline", { class: "stroke line", points: points.join(" ") }),
    draw("text", { x: x(end), y: y(most) - 3, "text-anchor": "end" }, longest > 0 ? `up to ${number(longest)} wait` : ""),
  ];
}

const confirm = { name: undefined, token: undefined };

function ask() {
  const name = opened();
  const holder = model.rows.get(name)?.holder;
  if (!holder) return;
  Object.assign(confirm, { name, token: holder.token });
  say(byId("confirmName"), plain(name));
  say(byId("confirmOwner"), holder.owner);
  say(byId("confirmToken"), String(holder.token));
  say(byId("confirmError"), "");
  byId("release").disabled = false;
  byId("confirm").showModal();
}

async function release() {
  byId("release").disabled = true;
  const error = await post("api/release", { view: model.view, name: confirm.name, token: confirm.token });
  if (error === undefined) byId("confirm").close();
  else {
    say(byId("confirmError"), error);
    byId("release").disabled = false;
  }
}

/** Sends a request. Returns what went wrong, or `undefined`. */
async function post(path, body) {
  try {
    const headers = { "content-type": "application/json" };
    const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    return response.ok ? undefined : plain((await response.text()).trim());
  } catch {
    return "The server of this page does not reply.";
  }
}
