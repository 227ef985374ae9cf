import { spawn } from "node:child_process";
import { atExit, waitFor, within } from "./wait.mjs";

/**
 * Starts a separate program, whose lines can be awaited. It is killed at the end of this process at the
 * latest. It does not keep this process alive if a test failed before it ended the program.
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
  let closed = false;
  const ended = new Promise((resolve) => {
    // "exit" may come before the last of the output.
    child.once("close", (code, signal) => {
      closed = true;
      resolve(signal ?? code);
    });
    child.once("error", (error) => {
      errors += error.stack;
    });
  });
  void ended.finally(forget);
  for (const handle of [child, child.stdin, child.stdout, child.stderr]) {
    handle?.unref();
  }
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
    /** Resolves to its exit code, or to the signal that ended it. It must end by itself within the limit. */
    async end(limit = 60_000) {
      try {
        return await within(ended, limit, () => `the end of the program: ${all()}`);
      } catch (error) {
        child.kill("SIGKILL");
        throw error;
      }
    },
    /** Resolves to the rest of the next line that begins with this word. */
    async says(word, limit = 60_000) {
      const find = () => {
        const at = lines.findIndex((line, i) => i >= read && line.startsWith(word));
        if (at < 0 && closed) {
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

/** Starts a Node module with these arguments. An unhandled rejection ends it with an exit code. */
export function startNode(file, ...args) {
  return startProgram(process.execPath, ["--unhandled-rejections=strict", file, ...args.map(String)]);
}
