// The page: buttons and words for three clients, a lock service and a storage.
import { Peer } from "./peer.mjs";
import { LockService } from "./service.mjs";
import { Storage } from "./storage.mjs";
import { play } from "./story.mjs";
import { Timeline } from "./timeline.mjs";

/** Milliseconds between drawings. */
const FRAME = matchMedia("(prefers-reduced-motion: reduce)").matches ? 500 : 50;
const LABELS = { pause: ["Pause", "Resume"], cut: ["Cut off", "Reconnect"] };
const find = (selector) => document.querySelector(selector);

const storage = new Storage();
const peers = [];
/** The lines of the document and the destroyed ones, in the order of their writes. */
const shown = [];
let story;

try {
  const service = await LockService.start();
  for (const card of document.querySelectorAll(".client")) {
    const peer = new Peer(card.dataset.name, { service, storage }, tellWrite);
    peers.push(peer);
    card.addEventListener("click", ({ target }) => press(peer, target.closest("button")));
  }
  const timeline = new Timeline(find("#timeline"), peers);
  let last = -FRAME;
  requestAnimationFrame(function frame(now) {
    if (now - last >= FRAME) {
      last = now;
      draw(timeline);
    }
    requestAnimationFrame(frame);
  });
} catch (error) {
  const unshared = "it is to be served by serve.mjs, which lets it share memory with workers";
  const why = crossOriginIsolated ? error.message : unshared;
  tell(`This page cannot run here: ${why}`, "bad");
}

find("#guard").addEventListener("change", ({ target }) => {
  storage.guarded = target.checked;
  const [on, off] = ["The guard is on: stale tokens are refused.", "The guard is off: no token is looked at."];
  note("", target.checked ? on : off);
});

find("#play").addEventListener("click", async () => {
  if (peers.length === 0) return;
  story?.abort();
  const mine = new AbortController();
  story = mine;
  const ended = await play(peers, tell, mine.signal);
  if (story === mine) story = undefined;
  if (!ended && !mine.signal.aborted) tell("The story could not go on: press Show me to begin anew.");
});

function press(peer, button) {
  const action = button?.dataset.action;
  if (action === undefined || !peer.can(action)) return;
  if (story !== undefined) {
    story.abort();
    story = undefined;
    tell("You took over.");
  }
  peer.do(action);
}

function draw(timeline) {
  const now = performance.now();
  for (const peer of peers) {
    peer.forget(now);
    const card = find(`.client[data-name="${peer.name}"]`);
    card.dataset.tenure = peer.tenure;
    put(card.querySelector(".status"), peer.status(now));
    for (const button of card.querySelectorAll("button")) {
      const { action } = button.dataset;
      // Not `disabled`: the focus would be lost.
      button.setAttribute("aria-disabled", String(!peer.can(action)));
      const pressed = (action === "pause" && peer.paused) || (action === "cut" && peer.cutOff);
      if (action in LABELS) {
        button.classList.toggle("pressed", pressed);
        put(button, LABELS[action][Number(pressed)]);
      }
    }
  }
  timeline.draw(now);
}

/** Shows the outcome of a write. */
function tellWrite({ peer: { name }, token, outcome, line, destroyed, refused }) {
  if (line !== undefined) shown.push({ ...line, destroyed: false });
  for (const { number } of destroyed ?? []) {
    const lost = shown.find((known) => known.number === number);
    if (lost !== undefined) lost.destroyed = true;
  }
  drawDocument();
  const by = (destroyed ?? []).map((lost) => `${lost.writer} wrote with token ${lost.token}`).join(", and what ");
  const words = {
    accepted: [`Accepted token ${token} from ${name}.`],
    destroyed: [`Accepted token ${token} from ${name}: it destroyed what ${by}.`, "bad"],
    refused: [`Refused token ${token} from ${name}: the guard has seen ${refused?.highest}.`, "good"],
    gaveUp: [`${name} looked before it wrote: its lease with token ${token} is over, so it sent nothing.`],
  };
  const [text, kind] = words[outcome];
  note(outcome, text);
  if (kind === "bad") {
    tell(`${text} The lock could not help, but a guard can: switch it on, and try again.`, kind);
  } else if (kind === "good") {
    tell(`${text} The late write does no harm.`, kind);
  }
}

function drawDocument() {
  shown.splice(0, shown.length - 6);
  const items = shown.map(({ number, writer, token, destroyed }) => {
    const item = document.createElement("li");
    item.classList.toggle("destroyed", destroyed);
    const text = document.createElement(destroyed ? "del" : "span");
    text.textContent = `${number}. ${writer} was here, with token ${token}`;
    item.append(text, destroyed ? " destroyed" : "");
    return item;
  });
  find("#document").replaceChildren(...items);
}

function note(kind, text) {
  const item = document.createElement("li");
  item.className = kind;
  item.textContent = text;
  find("#log").prepend(item);
  while (find("#log").childElementCount > 30) find("#log").lastChild.remove();
}

function tell(text, kind = "") {
  put(find("#caption"), text);
  find("#caption").className = kind;
}

/** Sets a text if it is new, so that screen readers do not read it twice. */
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
