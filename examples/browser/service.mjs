// The lock service: the store behind `memory://`, for clients in other threads.
import { compileMemory } from "./leasehold/leasehold-memory.js";

/** The clock of the service when the page begins, in milliseconds. Tokens follow it. */
export const BEGIN = 1e12;
/** The id of a client is the end of its channel's name. */
const ID = 16;

export class LockService {
  /** When its data was deleted, for the timeline. */
  flushes = [];
  #newServer;
  #server;
  /** The receivers of pushes, by client ID. */
  #receivers = new Map();

  static async start() {
    const newMemory = await compileMemory();
    return new LockService(() => newMemory(performance.now(), BEGIN + performance.now()));
  }

  constructor(newServer) {
    this.#newServer = newServer;
    this.#server = newServer();
  }

  /** Runs a call of the package's script as a Redis server would, and returns its reply. */
  execute(keys, args) {
    const reply = this.#server.execute(performance.now(), joined(keys), joined(args));
    for (let push = this.#server.takePush(); push !== undefined; push = this.#server.takePush()) {
      this.#receivers.get(push.slice(0, ID))?.(push.slice(ID));
    }
    return reply.includes(":") ? split(reply) : reply;
  }

  subscribe(channel, receive) {
    const id = channel.slice(-ID);
    this.#receivers.set(id, receive);
    this.#server.subscribe(id);
  }

  /** Deletes all its data, as FLUSHALL does. */
  flush() {
    this.flushes.push(performance.now());
    this.#server = this.#newServer();
    for (const id of this.#receivers.keys()) this.#server.subscribe(id);
  }
}

/** The store takes a list as one string: each string's length, a colon and itself. */
function joined(texts) {
  return texts.map((text) => `${text.length}:${text}`).join("");
}

function split(text) {
  const texts = [];
  for (let at = 0; at < text.length; ) {
    const begin = text.indexOf(":", at) + 1;
    at = begin + Number(text.slice(at, begin - 1));
    texts.push(text.slice(begin, at));
  }
  return texts;
}
