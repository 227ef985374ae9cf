// The form in which a visitor writes a schedule of faults.
import { CLIENTS, FAULTS, MOST, SERVER, checked, format, parse, random } from "./schedule.mjs";

const WORDS = {
  pause: "is paused",
  cut: "is cut off",
  slow: "has a slow clock",
  crash: "crashes",
  flush: "loses all data",
};
const find = (selector) => document.querySelector(selector);

export class Editor {
  #faults;
  #onMistake;

  /** Shows these faults. `onMistake` is called with the text of what cannot be added. */
  constructor(faults, onMistake) {
    this.#faults = faults;
    this.#onMistake = onMistake;
    fill("#who", [...CLIENTS, SERVER].map((who) => [who, who === SERVER ? "the server" : who]));
    find("#who").addEventListener("change", () => this.#offer());
    find("#what").addEventListener("change", () => this.#offerEnd());
    find("#schedule-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#add();
    });
    find("#random").addEventListener("click", () => this.#show(random()));
    find("#run").addEventListener("click", () => this.#run());
    find("#guard").addEventListener("change", () => this.#show(this.#faults));
    this.#offer();
    this.#show(faults);
  }

  /** Offers the faults that this client or the server may have. */
  #offer() {
    const who = find("#who").value;
    const able = Object.keys(FAULTS).filter((what) => FAULTS[what].of.includes(who));
    fill("#what", able.map((what) => [what, WORDS[what]]));
    this.#offerEnd();
  }

  #offerEnd() {
    find("#until").disabled = !FAULTS[find("#what").value].lasts;
  }

  #add() {
    const [who, what, from] = ["#who", "#what", "#from"].map((field) => find(field).value);
    const end = FAULTS[what].lasts ? `-${find("#until").value}` : "";
    try {
      this.#show(checked([...this.#faults, ...parse(`${who}.${what}.${from}${end}`)]));
    } catch (error) {
      this.#onMistake(`This fault cannot be added: ${error.message}.`);
    }
  }

  #show(faults) {
    this.#faults = faults;
    const items = faults.map((fault) => {
      const { who, what, from, until } = fault;
      const item = document.createElement("li");
      const remove = document.createElement("button");
      const when = until === undefined ? `at ${from} s` : `from ${from} to ${until} s`;
      const words = `${who === SERVER ? "The server" : who} ${WORDS[what]} ${when}`;
      remove.type = "button";
      remove.textContent = "Remove";
      remove.setAttribute("aria-label", `Remove: ${words}`);
      remove.addEventListener("click", () => this.#show(this.#faults.filter((other) => other !== fault)));
      item.append(words, remove);
      return item;
    });
    find("#schedule").replaceChildren(...items);
    find("#add").disabled = faults.length >= MOST;
    find("#link").href = this.#link();
  }

  #link() {
    return `#break=${format(this.#faults)}${find("#guard").checked ? "&guard=on" : ""}`;
  }

  /** Begins as a visitor with the link does: with a new page. */
  #run() {
    location.hash = this.#link();
    location.reload();
  }
}

/** Returns the schedule in the page's address, if there is one, and if the guard is on. Throws as `parse` does. */
export function ofAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const text = parameters.get("break");
  return { faults: text === null ? undefined : parse(text), guarded: parameters.get("guard") === "on" };
}

function fill(selector, options) {
  const made = options.map(([value, words]) => {
    const option = document.createElement("option");
    option.value = value;
    option.textContent = words;
    return option;
  });
  find(selector).replaceChildren(...made);
}
