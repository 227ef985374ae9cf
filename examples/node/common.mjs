// What the examples share: the command line, the signals, and promises that are checked.
import { parseArgs } from "node:util";

/** Reads the arguments; prints the help and ends if that is asked for, or if they are wrong. */
export function readArgs(help, options) {
  try {
    const { values } = parseArgs({ options: { ...options, help: { type: "boolean", short: "h" } } });
    if (!values.help) {
      return values;
    }
    console.log(help);
  } catch (error) {
    console.error(`${error.message}\n\n${help}`);
    process.exit(2);
  }
  process.exit(0);
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

/** An error as a user should see it. */
export function fail(error) {
  console.error(error?.code === undefined ? error : `error (${error.code}): ${error.message}`);
  process.exit(1);
}
