// What the examples share: the command line, the signals, and promises that are checked.
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

/** Ends unless a URL, if there is one, is of one of these schemes. It may have a password in it: it is not shown. */
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

/** Ends the program with 1 if it did not come as was promised. */
export function promise(kept, what) {
  if (!kept) {
    console.error(`BROKEN: ${what}`);
    process.exitCode = 1;
  }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** An error as a user should see it: clients keep the commands in theirs, and passwords in those. */
export function fail({ code, message }) {
  console.error(code === undefined ? `error: ${message}` : `error (${code}): ${message}`);
  process.exit(1);
}
