// A schedule of faults, and its form in a link: `A.pause.3-10,B.crash.5,server.flush.12`, in seconds.

export const CLIENTS = ["A", "B", "C"];
export const SERVER = "server";
/** The faults: who may have each, and whether it lasts. */
export const FAULTS = {
  pause: { of: CLIENTS, lasts: true },
  cut: { of: CLIENTS, lasts: true },
  slow: { of: CLIENTS, lasts: true },
  crash: { of: CLIENTS, lasts: false },
  flush: { of: [SERVER], lasts: false },
};
/** The greatest number of faults, and the time at which the last one ends, in seconds. */
export const MOST = 40;
export const LONGEST = 60;

/** Returns the faults in the order of their times. Throws an error that names the first mistake. */
export function parse(text) {
  const parts = text === "" ? [] : text.split(",", MOST + 1);
  return checked(parts.map(parsePart));
}

export function format(faults) {
  return faults.map(formatPart).join(",");
}

/** Returns the faults in the order of their times. Throws an error if there are too many, or two at once. */
export function checked(faults) {
  if (faults.length > MOST) throw new Error(`a schedule has at most ${MOST} faults`);
  const sorted = [...faults].sort((a, b) => a.from - b.from);
  for (const [index, fault] of sorted.entries()) {
    const before = sorted.slice(0, index).find((other) => overlaps(other, fault));
    if (before !== undefined) throw new Error(`${formatPart(fault)} begins before ${formatPart(before)} ends`);
  }
  return sorted;
}

/** Returns a schedule of a few faults at random. */
export function random() {
  const upTo = (most) => Math.floor(Math.random() * most);
  const pick = (list) => list[upTo(list.length)];
  const faults = [];
  for (let from = 2; from < 30; from += 2 + upTo(4)) {
    const what = pick(Object.keys(FAULTS));
    const { of, lasts } = FAULTS[what];
    const who = pick(of);
    const until = lasts ? from + 4 + upTo(6) : undefined;
    const fault = { who, what, from, until };
    if (!faults.some((other) => overlaps(other, fault))) faults.push(fault);
  }
  return faults;
}

/** True if the earlier fault still lasts when the later one of its kind begins. */
function overlaps(earlier, later) {
  return earlier.who === later.who && earlier.what === later.what && earlier.until > later.from;
}

function formatPart({ who, what, from, until }) {
  return `${who}.${what}.${from}${until === undefined ? "" : `-${until}`}`;
}

function parsePart(part) {
  const [, who, what, from, until] = /^(\w{1,6})\.(\w{1,5})\.(\d{1,2}(?:\.\d)?)(?:-(\d{1,2}(?:\.\d)?))?$/.exec(part) ?? [];
  const wrong = (why) => new Error(`${JSON.stringify(part.slice(0, 30))} ${why}`);
  if (who === undefined) throw wrong("is no fault; one is written as A.pause.3-10 or server.flush.12");
  if (!Object.hasOwn(FAULTS, what)) throw wrong(`is none of the faults ${Object.keys(FAULTS).join(", ")}`);
  const { of, lasts } = FAULTS[what];
  if (!of.includes(who)) throw wrong(`is a fault of ${of.join(", ")} only`);
  const fault = { who, what, from: Number(from), until: until === undefined ? undefined : Number(until) };
  if (lasts !== (until !== undefined)) throw wrong(lasts ? "has no end" : "has an end, but does not last");
  if (lasts && fault.until <= fault.from) throw wrong("ends before it begins");
  if ((fault.until ?? fault.from) > LONGEST) throw wrong(`ends after ${LONGEST} seconds`);
  return fault;
}
