import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, openSync, closeSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { atExit, waitFor, within } from "./wait.mjs";

/**
 * A database server that refuses to run as root. It has a temporary folder with a Unix socket, and listens on
 * no port. It is killed at the end of the process at the latest.
 */
export class DatabaseServer {
  #child;
  #forget;
  #user;

  /** The path is short, because a socket's path has at most 107 bytes. */
  constructor(name, user) {
    this.#user = user;
    this.folder = mkdtempSync(`/tmp/${name}-`);
    this.#forget = atExit(() => this.#remove());
  }

  /** Gives the folder to the user, if this is root. */
  give() {
    if (process.getuid() === 0) {
      execFileSync("chown", ["-R", this.#user, this.folder]);
    }
  }

  /** Runs a program to its end. */
  run(program, args, install) {
    const [command, ...rest] = this.#command(program, args);
    try {
      execFileSync(command, rest, { cwd: "/", stdio: ["ignore", "pipe", "pipe"], timeout: 120_000 });
    } catch (error) {
      throw new Error(`${program}: ${error.message} ${error.stderr ?? ""}${error.stdout ?? ""}; ${install}`);
    }
  }

  /** Starts the server, and waits until it answers. */
  async start(program, args, answers, install) {
    const log = join(this.folder, "log");
    const output = openSync(log, "w");
    const [command, ...rest] = this.#command(program, args);
    const child = spawn(command, rest, { cwd: "/", stdio: ["ignore", output, output] });
    closeSync(output);
    this.#child = child;
    child.unref();
    let failed;
    child.on("error", (error) => {
      failed = error;
    });
    const up = async () => {
      if (failed || child.exitCode !== null || child.signalCode !== null) {
        throw new Error(`${program} did not start: ${failed ?? readFileSync(log, "utf8").slice(-800)}; ${install}`);
      }
      return answers();
    };
    await waitFor(up, 60_000, `${program} answers`);
  }

  /** Ends the server with this signal, and removes its folder. */
  async stop(signal) {
    const child = this.#child;
    if (child && child.exitCode === null && child.signalCode === null) {
      const gone = new Promise((resolve) => child.once("exit", resolve));
      child.ref();
      child.kill(signal);
      // A server that is still running after that is ended as at the end of the process.
      await within(gone, 30_000, "the end of the server").catch(() => this.#kill());
    }
    this.#forget();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }

  #remove() {
    this.#kill();
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }

  #kill() {
    // Postgres ends its own children on this signal, even if nobody waits for it.
    this.#child?.kill(this.#user === "postgres" ? "SIGQUIT" : "SIGKILL");
  }

  /**
   * Returns how to run a program as the user, if this is root. The process is the program itself, without a
   * shell.
   */
  #command(program, args) {
    const as = ["setpriv", "--reuid", this.#user, "--regid", this.#user, "--clear-groups", "--"];
    return [...(process.getuid() === 0 ? as : []), program, ...args];
  }
}
