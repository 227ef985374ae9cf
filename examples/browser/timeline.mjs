// The timeline: a lane for each client and one for the storage, drawn anew some times a second.

import { short } from "./token.mjs";

const SVG = "http://www.w3.org/2000/svg";
/** How many milliseconds of the future are shown: the time to live of a lease. */
const AHEAD = 5_500;
/** The least number of pixels per second; the past that does not fit is not shown. */
const SCALE = 16;
const MOST = 32_000;
const BAR = 22;
const MARKS = { accepted: "✓", refused: "✕", destroyed: "!" };

/** Draws the peers' histories and the service's flushes; `svg` is as wide and high as the page makes it. */
export class Timeline {
  #svg;
  #peers;
  #service;

  constructor(svg, peers, service) {
    this.#svg = svg;
    this.#peers = peers;
    this.#service = service;
  }

  draw(now) {
    const { clientWidth: width, clientHeight: height } = this.#svg;
    if (width === 0) return;
    const past = Math.min(MOST, (width / SCALE) * 1_000 - AHEAD);
    const scene = {
      now,
      begin: now - past,
      lane: height / (this.#peers.length + 1),
      width,
      height,
      x: (time) => ((time - now + past) / (past + AHEAD)) * width,
    };
    const lanes = this.#peers.map((peer, index) => lane(scene, peer, (index + 0.5) * scene.lane));
    const writes = this.#peers.flatMap((peer, index) => drawWrites(scene, peer, (index + 0.5) * scene.lane));
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const flushes = this.#service.flushes.flatMap((at) => event(scene, "server flushed", at, 0, height));
    const names = [...this.#peers.map(({ name }) => name), "storage"];
    this.#svg.querySelector("g").replaceChildren(...grid(scene, names), ...lanes.flat(), ...writes, ...flushes);
  }
}

function grid(scene, names) {
  const { begin, now, width, height, lane, x } = scene;
  const lines = [];
  for (let time = Math.ceil(begin / 5_000) * 5_000; time < now + AHEAD; time += 5_000) {
    lines.push(line("tick", x(time), 0, x(time), height));
  }
  for (let y = lane; y < height - 1; y += lane) lines.push(line("lane", 0, y, width, y));
  lines.push(node("rect", { class: "future", x: x(now), y: 0, width: width - x(now), height }));
  lines.push(line("now", x(now), 0, x(now), height));
  lines.push(label("dim", "now", x(now) + 5, height - 7, "start"));
  return lines.concat(names.map((name, index) => label("dim", name, width - 6, index * lane + 16, "end")));
}

function lane(scene, peer, y) {
  const { now } = scene;
  const drawn = [];
  for (const [kind, spans, text] of [
    ["pause", peer.history.pauses, "paused"],
    ["cut", peer.history.cuts, "cut off"],
    ["slow", peer.history.slows, "slow clock"],
  ]) {
    for (const { from, until = now } of spans) {
      drawn.push(...box(scene, kind, from, until, y, scene.lane - 6));
      const at = kind === "pause" ? y - scene.lane / 2 + 14 : y + scene.lane / 2 - 7;
      drawn.push(...within(scene, "dim", text, from, until, at));
    }
  }
  for (const lease of peer.history.leases) drawn.push(...drawLease(scene, peer.name, lease, y));
  const top = y - scene.lane / 2;
  return drawn.concat(peer.history.crashes.flatMap(({ from }) => event(scene, "crash", from, top, top + scene.lane)));
}

/** Draws a fault that takes no time. */
function event({ x, begin }, text, at, top, bottom) {
  if (at < begin) return [];
  return [line("event", x(at), top, x(at), bottom), label("dim", text, x(at) + 4, top + 26, "start")];
}

/** Draws a lease: its remaining time is paler, and the time after its end in which its holder still trusts it is dashed. */
function drawLease(scene, name, { from, until, believed, deadline, token }, y) {
  const { now } = scene;
  const end = until ?? Math.min(now, deadline);
  const drawn = box(scene, `lease ${name}`, from, end, y, BAR);
  if (until === undefined && deadline > now) drawn.push(...box(scene, `left ${name}`, now, deadline, y, BAR));
  const belief = until === undefined ? now : believed;
  if (belief - end > 150) drawn.push(...box(scene, `belief ${name}`, end, belief, y, BAR));
  drawn.push(...within(scene, "token", short(token), from, end, y + 4));
  return drawn;
}

function drawWrites(scene, { history }, y) {
  const { now, height, lane, begin, x } = scene;
  const storage = height - lane / 2;
  return history.writes.flatMap(({ from, sent, until, outcome, token }) => {
    if ((until ?? now) < begin) return [];
    const work = [x(from), y, x(sent ?? now), y];
    const drawn = [line("halo", ...work), line("write", ...work), circle("look", x(from), y, 4)];
    if (sent === undefined) return drawn;
    // Messages under way are between the lanes.
    const [endX, endY] = until === undefined ? [x(now), (y + storage) / 2] : [x(until), storage];
    drawn.push(line(`sent ${outcome ?? "late"}`, x(sent), y, endX, endY));
    if (until === undefined) return drawn;
    drawn.push(circle(`mark ${outcome}`, endX, storage, 10));
    drawn.push(label(`verdict ${outcome}`, MARKS[outcome], endX, storage + 5, "middle"));
    drawn.push(label("dim", short(token), endX, storage + 24, "middle"));
    return drawn;
  });
}

function box({ x, begin, width }, kind, from, until, y, height) {
  if (until < begin) return [];
  const left = Math.max(x(from), -8);
  const right = Math.max(Math.min(x(until), width), left + 1);
  return [node("rect", { class: kind, x: left, y: y - height / 2, width: right - left, height, rx: 4 })];
}

/** A text in a span, if it fits. */
function within({ x, begin }, kind, text, from, until, y) {
  const [left, right] = [x(Math.max(from, begin)), x(until)];
  return right - left < text.length * 7 + 4 ? [] : [label(kind, text, left + 5, y, "start")];
}

const line = (kind, x1, y1, x2, y2) => node("line", { class: kind, x1, y1, x2, y2 });
const circle = (kind, cx, cy, r) => node("circle", { class: kind, cx, cy, r });

function label(kind, text, x, y, anchor) {
  const made = node("text", { class: kind, x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
}

function node(kind, attributes) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) {
    made.setAttribute(name, typeof value === "number" ? value.toFixed(1) : value);
  }
  return made;
}
