// The page: buttons and words for three clients, a lock service and a storage, and the schedules of faults.
import { Editor, ofAddress } from "./editor.mjs";
import { run } from "./faults.mjs";
import { Peer } from "./peer.mjs";
import { LockService } from "./service.mjs";
import { Storage } from "./storage.mjs";
import { play } from "./story.mjs";
import { Timeline } from "./timeline.mjs";
import { short } from "./token.mjs";

/** Milliseconds between drawings. */
const FRAME = matchMedia("(prefers-reduced-motion: reduce)").matches ? 500 : 50;
const LABELS = { pause: ["Pause", "Resume"], cut: ["Cut off", "Reconnect"] };
const find = (selector) => document.querySelector(selector);

const storage = new Storage();
const peers = [];
/** The lines of the document and the destroyed ones, in the order of their writes. */
const shown = [];
/** How many writes had each outcome. */
const writes = { accepted: 0, destroyed: 0, refused: 0, gaveUp: 0 };
/** Aborts the story or the schedule that is under way. */
let story;

const schedule = read();
new Editor(schedule ?? [], (text) => tell(text, "bad"));
// A link to another schedule that is opened in this page.
addEventListener("hashchange", () => location.reload());

try {
  const service = await LockService.start();
  for (const card of document.querySelectorAll(".client")) {
    // Dense tokens are easy to read, but may fall back after a flush, which a schedule may have.
    const options = { denseTokens: schedule === undefined };
    const peer = new Peer(card.dataset.name, { service, storage }, tellWrite, options);
    peers.push(peer);
    card.addEventListener("click", ({ target }) => press(peer, target.closest("button")));
  }
  const timeline = new Timeline(find("#timeline"), peers, service);
  let last = -FRAME;
  requestAnimationFrame(function frame(now) {
    if (now - last >= FRAME) {
      last = now;
      draw(timeline);
    }
    requestAnimationFrame(frame);
  });
  if (schedule !== undefined) void breakIt(service);
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

/** Reads the page's address: shows its guard, and returns its schedule if it has one. */
function read() {
  try {
    const { faults, guarded } = ofAddress();
    storage.guarded = guarded;
    find("#guard").checked = guarded;
    return faults;
  } catch (error) {
    tell(`The schedule of this link cannot be run: ${error.message}.`, "bad");
    return undefined;
  }
}

/** Runs the schedule, and tells whether anything broke. */
async function breakIt(service) {
  const mine = new AbortController();
  story = mine;
  tell("The clients take turns by themselves while your faults happen.");
  const ended = await run(schedule, peers, service, mine.signal);
  if (story === mine) story = undefined;
  if (!ended) return;
  const { accepted, destroyed, refused } = writes;
  const counts = `${accepted + destroyed} writes accepted, ${refused} refused as late`;
  const sum = (lost) => `The schedule is over: ${counts}, ${lost} destroyed.`;
  if (destroyed > 0) {
    tell(`${sum("some")} Each writer had looked at its lease. Switch the guard on, and run it again.`, "bad");
  } else if (refused > 0) {
    tell(sum("none"), "good");
  } else {
    tell(`${sum("none")} Pause a client for more than 5 s, or slow its clock for longer.`);
  }
}

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
  writes[outcome] += 1;
  if (line !== undefined) shown.push({ ...line, destroyed: false });
  for (const { number } of destroyed ?? []) {
    const lost = shown.find((known) => known.number === number);
    if (lost !== undefined) lost.destroyed = true;
  }
  drawDocument();
  const by = (destroyed ?? []).map((lost) => `${lost.writer} wrote with token ${short(lost.token)}`).join(", and what ");
  const words = {
    accepted: [`Accepted token ${short(token)} from ${name}.`],
    destroyed: [`Accepted token ${short(token)} from ${name}: it destroyed what ${by}.`, "bad"],
    refused: [`Refused token ${short(token)} from ${name}: the guard has seen ${short(refused?.highest ?? 0)}.`, "good"],
    gaveUp: [`${name} looked before it wrote: its lease with token ${short(token)} is over, so it sent nothing.`],
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
    text.textContent = `${number}. ${writer} was here, with token ${short(token)}`;
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
