// The clock of this thread, which a fault may slow down. It is imported before the package, which keeps the
// function that it finds.
const real = performance.now.bind(performance);
const realTimeout = globalThis.setTimeout;
let rate = 1;
let since = real();
let shown = since;

performance.now = () => shown + (real() - since) * rate;
// A thread with a slow clock also wakes late.
globalThis.setTimeout = (act, ms = 0, ...rest) => realTimeout(act, ms / rate, ...rest);

/** Lets the clock go on at this rate: 1 is the speed of other clocks. */
export function setRate(next) {
  shown = performance.now();
  since = real();
  rate = next;
}
