// What the examples share: the command line, signals, and checks of what was promised.
import { parseArgs } from "node:util";

const FIRST = "\n\nBefore the first run: npm install, in the folder of the examples.";

/** Reads the arguments; prints the help and ends if that is asked for, or if they are wrong. */
export function readArgs(help, options) {
  try {
    const { values } = parseArgs({ options: { ...options, help: { type: "boolean", short: "h" } } });
    if (!values.help) {
      return values;
    }
    console.log(help + FIRST);
  } catch (error) {
    wrongUse(error.message, help);
  }
  process.exit(0);
}

/** Says what is wrong with the arguments, and ends. */
export function wrongUse(why, help) {
  console.error(`${why}\n\n${help}${FIRST}`);
  process.exit(2);
}

/** Ends with an error if the URL has another scheme. The error does not show the URL, which may hold a password. */
export function checkScheme(url, schemes, help) {
  if (url !== undefined && !schemes.some((scheme) => url.toLowerCase().startsWith(`${scheme}://`))) {
    wrongUse(`--url is a URL that begins with ${schemes.map((scheme) => `${scheme}://`).join(" or ")}`, help);
  }
}

/** Frees everything at Ctrl-C and SIGTERM, so that nobody has to wait for a lease to end. */
export function shutdownAtSignals(...lockers) {
  for (const signal of ["SIGINT", "SIGTERM"]) {
    process.once(signal, async () => {
      console.error(`\n${signal}: releasing what is held`);
      await Promise.all(lockers.map((locker) => locker.shutdown()));
      process.exit(signal === "SIGINT" ? 130 : 143);
    });
  }
}

/** If a promise was not kept, says so, and makes the program exit with 1 at its end. */
export function promise(kept, what) {
  if (!kept) {
    console.error(`BROKEN: ${what}`);
    process.exitCode = 1;
  }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Shows only code and message of an error: others' errors hold commands, and those may hold passwords. */
export function fail({ code, message }) {
  console.error(code === undefined ? `error: ${message}` : `error (${code}): ${message}`);
  process.exit(1);
}
