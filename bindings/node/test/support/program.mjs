import { spawn } from "node:child_process";
import { atExit, waitFor } from "./wait.mjs";

/**
 * Starts a program of its own, whose lines can be waited for. It is gone at the end of the process at
 * the latest.
 */
export function startProgram(command, args, options) {
  const child = spawn(command, args, options);
  const lines = [];
  let rest = "";
  let errors = "";
  child.stdout.on("data", (data) => {
    const parts = (rest + data).split("\n");
    rest = parts.pop();
    lines.push(...parts);
  });
  child.stderr.on("data", (data) => {
    errors += data;
  });
  const forget = atExit(() => child.kill("SIGKILL"));
  const ended = new Promise((resolve) => child.once("close", (code, signal) => resolve(signal ?? code)));
  void ended.finally(forget);
  const all = () => `${lines.join("\n")}\n${errors}`;
  let read = 0;
  return {
    lines,
    output: all,
    pid: child.pid,
    get running() {
      return child.exitCode === null && child.signalCode === null;
    },
    kill: (signal = "SIGKILL") => child.kill(signal),
    write: (line) => child.stdin.write(`${line}\n`),
    /** Its exit code, or the signal that ended it; it must end by itself within the limit. */
    async end(limit = 10_000) {
      const over = await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, limit, "none"))]);
      if (over === "none") {
        child.kill("SIGKILL");
        throw new Error(`the program did not end: ${all()}`);
      }
      return over;
    },
    /** The rest of the next line that begins with this. */
    async says(word, limit = 10_000) {
      const find = () => {
        const at = lines.findIndex((line, i) => i >= read && line.startsWith(word));
        if (at < 0 && !(child.exitCode === null && child.signalCode === null)) {
          throw new Error(`the program ended without ${word}: ${all()}`);
        }
        return at < 0 ? undefined : { at };
      };
      const { at } = await waitFor(find, limit, () => `the program says ${word}: ${all()}`);
      read = at + 1;
      return lines[at].slice(word.length).trim();
    },
  };
}

/** Starts a module of Node with these arguments; an unhandled rejection ends it with a code. */
export function startNode(file, ...args) {
  return startProgram(process.execPath, ["--unhandled-rejections=strict", file, ...args.map(String)]);
}
