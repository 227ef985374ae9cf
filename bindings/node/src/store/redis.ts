import type { Adapter, TrackingMember } from "../adapters/index.js";
import { failure } from "../adapters/failure.js";
import { text, within } from "../adapters/shared.js";
import { attempt } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { warn } from "../common/platform.js";
import { messageOf } from "../common/printable.js";
import type { Finding } from "../common/types.js";
import { type Engine, parsed, stateless } from "../module/wasm.js";
import { explained, named } from "./explain.js";
import { ServerStore } from "./instance.js";
import { type Batch, joined, type Reply, type ServerOf, type Store, type StoreHost, type Wire } from "./store.js";

/** The time limit of each question of `check`, in milliseconds. */
const CHECK_LIMIT = 3_000;

/** The time limit for turning tracking off, or handing it to another locker, in milliseconds. */
const LEAVE_LIMIT = 500;

/** A Redis server, through a client. */
export class RedisStore extends ServerStore implements Store {
  readonly clustered: boolean;
  readonly members = undefined;
  readonly serverOf: ServerOf | undefined;
  readonly polled: boolean;
  readonly wire: Wire;
  readonly #adapter: Adapter;
  readonly #script: { readonly text: string; readonly sha: string };
  #runId: string | undefined;
  #unwatch: (() => void) | undefined;
  #unlisten: (() => void) | undefined;
  /** The number of times that the connection came up or went down. */
  #links = 0;
  #up = false;
  #member: TrackingMember | undefined;
  /** The reason why changes by other clients are not reported at once. */
  #untracked: Finding | undefined;
  /** The reason why no pushes arrive at all. */
  #unheard: Finding | undefined;

  constructor(adapter: Adapter, private readonly namespace: string) {
    super();
    // Without a prototype, so that missing methods are `undefined`, whatever `Object.prototype` has.
    this.#adapter = { __proto__: null, ...adapter } as Adapter;
    this.clustered = adapter.clustered;
    this.serverOf = this.#adapter.serverOf;
    this.polled = this.#adapter.listen === undefined;
    this.wire = this.#adapter.send === undefined ? "texts" : "command";
    this.#script = { text: stateless().script(), sha: stateless().scriptSha() };
  }

  override open(host: StoreHost): void {
    super.open(host);
    this.#unwatch?.();
    const link = {
      up: () => {
        this.#links += 1;
        this.#up = true;
        host.connected();
        this.#member?.linked(true);
      },
      down: (error: unknown) => {
        this.#links += 1;
        this.#up = false;
        this.#member?.linked(false);
        host.disconnected(this.#error(error));
      },
    };
    this.#unwatch = attempt("the client cannot be watched", () => this.#adapter.watch(link));
  }

  /** The server's run id, if `check` learned it. */
  get runId(): string | undefined {
    return this.#runId;
  }

  /**
   * Checks that the server can keep locks and that this user may run the script. Returns what endangers
   * leases.
   */
  async check(): Promise<Finding[]> {
    // A caller waits for this check. Later the host decides.
    this.keepAlive(true);
    try {
      // Both requests go out at once. A problem of the server says more than the resulting error of a script.
      const ran = inTime(this.#run([], [stateless().emptyBatch()]));
      ran.catch(() => {});
      const info = await inTime(this.#info());
      stateless().checkServer(info, this.clustered);
      await ran;
      this.#runId = /^run_id:(\w+)/m.exec(info)?.[1];
      const policy = stateless().evictionPolicy(info);
      return policy === "" ? [] : [warned(policy)];
    } catch (error) {
      const failure = typeof error === "string" ? parsed(error) : this.#error(error);
      throw named(failure, this.#adapter);
    }
  }

  execute(host: StoreHost, engine: Engine, batch: Batch): void {
    const replied = (reply: unknown) => host.replied(engine, batch, replyOf(reply));
    const failed = (error: unknown) => host.replyFailed(engine, batch, this.#error(error));
    const { keys, args, wait, command } = batch;
    const { send } = this.#adapter;
    if (wait !== undefined) {
      const texts = command === undefined ? { keys, args } : textsOf(command);
      this.#runDurably(texts, wait).then((reply) => host.replied(engine, batch, reply), failed);
      return;
    }
    if (send === undefined || command === undefined) {
      this.#run(keys, args).then(replied, failed);
      return;
    }
    send(command).then(replied, (error: unknown) => {
      ifMissing(error, () => this.#evaluate(textsOf(command))).then(replied, failed);
    });
  }

  subscribe(host: StoreHost, channel: string, tracks: boolean): void {
    const tracked = {
      watching: () => {
        this.#untracked = undefined;
        host.watching();
      },
      changed: (key: string) => host.changed(key),
      refused: (error: unknown) => this.#refusesTracking(error),
    };
    const member = tracks ? this.#adapter.tracking?.join(tracked, this.#up) : undefined;
    this.#member = member;
    this.#unlisten = this.#adapter.listen?.(channel, {
      subscribed: (id) => {
        this.#unheard = undefined;
        host.hears(true);
        if (typeof id === "object") {
          this.#refusesTracking(id.error);
        } else {
          member?.hears(id);
        }
      },
      unsubscribed: (error) => {
        this.#refusesPushes(error);
        member?.hears(undefined);
        host.hears(false);
      },
      message: (text) => host.pushed(text),
      ...(member !== undefined && { changed: (key: string) => member.said(key) }),
    });
  }

  unsubscribe(): void {
    void this.#member?.leave();
    this.#member = undefined;
    this.#unlisten?.();
    this.#unlisten = undefined;
  }

  /** The findings since `check`. */
  get findings(): readonly Finding[] {
    const found = this.#unheard ?? this.#untracked;
    return found === undefined ? [] : [found];
  }

  /** Notes that the server refused the subscription. */
  #refusesPushes(error: unknown): void {
    this.#unheard = this.#refusal(
      error,
      "the server lets this user hear no pushes: waiters ask every second, and a holder whose lock was deleted or " +
        "overwritten learns of it only at its next renewal",
    ) ?? this.#unheard;
  }

  /** Notes that the server refused tracking. */
  #refusesTracking(error: unknown): void {
    this.#untracked = this.#refusal(
      error,
      "the server does not notify a holder whose lock was deleted or overwritten; the holder learns of it only at " +
        "its next renewal",
    ) ?? this.#untracked;
  }

  /**
   * Returns the finding for a refusal. Locks work without what was refused. An error other than a refusal is temporary:
   * the next connection tries again.
   */
  #refusal(error: unknown, effect: string): Finding | undefined {
    if (!(error instanceof LeaseholdError || "reply" in failure(error))) {
      return undefined;
    }
    const { message: reason } = this.#error(error);
    return { type: "untracked", reason, message: `${effect}: ${reason}` };
  }

  watch(host: StoreHost, keys: readonly string[]): void {
    this.#adapter.tracking?.read(keys).then(
      // A missing key was deleted before it was read.
      (there) => there < keys.length && keys.forEach((key) => host.changed(key)),
      (error) => this.#refusesTracking(error),
    );
  }

  keepAlive(alive: boolean): void {
    this.#adapter.keepAlive?.(alive);
  }

  suspect(demoted: boolean): void {
    this.#adapter.suspect?.(demoted);
  }

  async close(host: StoreHost): Promise<void> {
    this.forget(host);
    // The store listens until another locker does, so that no change is missed. It does not wait long for a
    // silent server.
    await within(LEAVE_LIMIT, this.#member?.leave() ?? Promise.resolve(), "the server did not answer").catch(() => {});
    this.unsubscribe();
    this.#unwatch?.();
    await this.#adapter.close();
  }

  async #info(): Promise<string> {
    try {
      return (await this.#adapter.info?.("default")) ?? "";
    } catch (error) {
      // A user who may not run INFO may still run the script, which is tried next.
      const failed = failure(error);
      if ("reply" in failed && stateless().infoIsWithheld(failed.reply)) {
        return "";
      }
      throw error;
    }
  }

  async #run(keys: string[], args: string[]): Promise<unknown> {
    const byText = () => this.#evaluate({ keys, args });
    const ran = this.#adapter.evalsha?.(this.#script.sha, keys, args);
    return ran?.catch((error: unknown) => ifMissing(error, byText)) ?? byText();
  }

  #evaluate({ keys, args }: Texts): Promise<unknown> {
    return this.#adapter.eval(this.#script.text, keys, args);
  }

  /** Runs the script, and waits for copies of its writes. */
  async #runDurably({ keys, args }: Texts, wait: string[]): Promise<Reply> {
    const { client, runThen } = this.#adapter;
    if (runThen === undefined) {
      const message = `${client} cannot wait for replicas or the disk on a lock's connection; use ioredis or a node-redis client`;
      throw new LeaseholdError("unsupported", message);
    }
    const { text, sha } = this.#script;
    const links = this.#links;
    const ran = await runThen("EVALSHA", sha, keys, args, wait).catch((error: unknown) =>
      ifMissing(error, () => runThen("EVAL", text, keys, args, wait)),
    );
    if (links !== this.#links) {
      // A new connection has written nothing that its server would wait for.
      const message = "the connection was replaced before the copies of the write were confirmed";
      throw new LeaseholdError("unavailable", message);
    }
    const reply = replyOf(ran.reply);
    // WAIT does not say whether the write is on disk, but in that case the lock does not ask.
    const copies = "waited" in ran ? [1, ran.waited].flat().slice(-2).map(String) : this.#refused(ran.refused);
    return joined(copies) + (typeof reply === "number" ? joined([String(reply)]) : reply);
  }

  /** Returns why a server does not wait. Throws any error that is not a refusal. */
  #refused(error: unknown): string[] {
    if (!("reply" in failure(error))) {
      throw error;
    }
    const { code, message } = this.#error(error);
    return [code, message];
  }

  #error(error: unknown): LeaseholdError {
    return explained(error, this.#adapter, this.namespace);
  }
}

function warned(policy: string): Finding {
  const message =
    `maxmemory-policy is ${policy}, so a full server evicts held locks and gives them to others; ` +
    "set maxmemory-policy to noeviction";
  warn(message);
  return { type: "eviction", policy, message };
}

/** Limits the time of a reply to `check`. The engine, which times batches, is not involved. */
function inTime<T>(answer: Promise<T>): Promise<T> {
  return within(CHECK_LIMIT, answer, "the server did not answer", true);
}

/**
 * Runs the script by its text if the error says that the server does not have it; otherwise throws the error.
 */
async function ifMissing<T>(error: unknown, byText: () => Promise<T>): Promise<T> {
  if (stateless().scriptIsMissing(messageOf(error))) {
    return byText();
  }
  throw error;
}

/** The longest reply, in characters. A reply to the largest batch has far fewer. */
const LONGEST_REPLY = 2 ** 24;

/** Converts a script's reply to the form that the engine takes. */
function replyOf(answer: unknown): Reply {
  if (!Array.isArray(answer)) {
    const time = text(answer);
    return typeof time === "string" && TIME.test(time) ? Number(time) : "";
  }
  let fields = "";
  try {
    for (const field of answer as unknown[]) {
      const part = typeof field === "string" ? field : String(field);
      fields += `${part.length}:${part}`;
    }
  } catch {
    return "";
  }
  return fields.length > LONGEST_REPLY ? "" : fields;
}

/** A server's time in microseconds, or 0 for none. */
const TIME = /^(?:0|[1-9]\d{15})$/;

type Texts = Pick<Batch, "keys" | "args">;

/** Returns the keys and arguments in a command that the engine made. */
function textsOf(command: Uint8Array): Texts {
  const [, , count, ...parts] = partsOf(command);
  return { keys: parts.slice(0, Number(count)), args: parts.slice(Number(count)) };
}

/** Splits a command that the engine made into its parts. */
function partsOf(command: Uint8Array): string[] {
  const line = (from: number) => command.indexOf(LINE_FEED, from) + 1;
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const parts: string[] = [];
  for (let at = line(0); at < command.length; ) {
    const begin = line(at);
    // The length follows a dollar sign.
    const end = begin + Number.parseInt(decoder.decode(command.subarray(at + 1, begin)), 10);
    parts.push(decoder.decode(command.subarray(begin, end)));
    at = line(end);
  }
  return parts;
}

const LINE_FEED = 10;
