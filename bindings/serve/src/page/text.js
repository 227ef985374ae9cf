// Texts and small elements of the page. What comes from the store only ever becomes text.

/** Characters that move a cursor or turn a text around. They are shown as escapes. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

const plain = (text) =>
  String(text).replace(UNSEEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

const byId = (id) => document.getElementById(id);

/** Sets an element's text if it differs, so that nothing is repainted without need. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function draw(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Formats a time in at most two units. */
function span(millis) {
  const s = Math.floor(millis / 1000);
  if (millis < 0 || !Number.isFinite(millis)) return "–";
  if (s < 10) return `${Math.floor(millis / 100) / 10}s`;
  if (s < 60) return `${s}s`;
  const [m, h, d] = [Math.floor(s / 60), Math.floor(s / 3600), Math.floor(s / 86400)];
  const pair = (large, unit, small, other) => (small ? `${large}${unit} ${small}${other}` : `${large}${unit}`);
  if (h < 1) return pair(m, "m", s % 60, "s");
  if (d < 1) return pair(h, "h", m % 60, "m");
  return pair(d, "d", h % 24, "h");
}

const number = (value) => value.toLocaleString("en");

const ENDS = {
  released: "released",
  expired: "expired: nobody renewed it",
  superseded: "taken over by its owner",
  revoked: "released by force here",
  ended: "ended in an unknown way",
};
const LOSSES = new Set(["expired", "superseded", "revoked"]);
/** The ends in the order in which the server counts them. */
const END_ORDER = ["released", "expired", "superseded", "revoked", "ended"];
const BUCKETS = ["≤10 ms", "≤0.1 s", "≤1 s", "≤10 s", "≤1 min", "≤10 min", "more"];

const clock = (at) => new Date(performance.timeOrigin + at).toTimeString().slice(0, 8);

/** Says what happened, without the name of the lock. */
function happening(event) {
  const waited = event.waited === undefined ? "" : `, waited ${span(event.waited)}`;
  return event.kind === "acquired" ? `${event.owner} has it${waited}` : `${event.owner}: ${ENDS[event.kind]}`;
}

/** Says when a lease was renewed, and when it ends otherwise. */
function renewal({ renewed, since, until }) {
  const left = until - now();
  const held = since === undefined ? "" : `taken ${span(now() - since)} ago`;
  return [
    renewed === undefined ? held || "no renewal seen yet" : `renewed ${span(now() - renewed)} ago`,
    left > 0 ? `expires in ${span(left)} unless renewed` : "not renewed in time",
  ];
}
