import { config } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { later, stopTimer } from "./shared.js";
import { builtin, type Socket, type TlsOptions } from "./tls.js";
import { tlsErrorMeaning } from "./tls-errors.js";
import type { Address, Target } from "./url.js";

/** Milliseconds that a look may take. */
const LIMIT = 1_000;

/** A server of another protocol than is expected often looks like one that is slow. */
const SLOW = 500;

/** A first message of TLS 1.2 or 1.3, which each server of it answers; as in `core/src/adapter/fred/endpoint.rs`. */
const HELLO =
  "\x16\x03\x01\x00\x35\x01\x00\x00\x31\x03\x03leasehold looks who answers here\x00\x00\x0a" +
  "\xc0\x2b\xc0\x2f\xc0\x2c\xc0\x30\x00\x2f\x01\x00";

/**
 * Resolves to what is wrong with a server that cannot be connected to, on a connection of its own: whether one
 * side speaks TLS and the other does not, or one does not trust the other. To most clients these are a
 * time-out or a connection that was closed. Some say it in their `error`.
 */
export async function look(target: Target, options: TlsOptions, error?: unknown): Promise<LeaseholdError | undefined> {
  const { kind, nodes, tls } = target;
  const known = tlsError(error);
  if (known !== undefined) {
    return known;
  }
  const [first] = nodes;
  if (kind === "socket" || first === undefined) {
    return undefined;
  }
  const byte = await answer(first, tls ? "PING\r\n" : HELLO);
  if (tls) {
    return byte === 0x2b || byte === 0x2d
      ? config("the server does not speak TLS, but the store's URL uses it; connect to redis://, or to the server's TLS port")
      : refusal(first, options);
  }
  return byte === 0x15 || byte === 0x16
    ? config("the server speaks TLS, but the store's URL does not use it; connect to rediss://, or to another port")
    : undefined;
}

/** Looks at a server while it is slow to connect to. Never resolves if nothing is wrong with it, or once it is `over`. */
export function lookIfSlow(target: Target, tls: TlsOptions, over: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const wrong = async () => {
      const error = await look(target, tls);
      if (error !== undefined) {
        reject(error);
      }
    };
    const timer = later(SLOW, () => void wrong());
    over.addEventListener("abort", () => stopTimer(timer));
  });
}

/** Why one side does not trust the other. A server looks at a client's certificate once the client is done. */
async function refusal(address: Address, options: TlsOptions): Promise<LeaseholdError | undefined> {
  const socket = builtin("tls")?.connect({ ...address, ...options });
  return socket && firstOf(socket, (end) => socket.on("error", (error) => end(tlsError(error))));
}

function tlsError(error: unknown): LeaseholdError | undefined {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  const why = tlsErrorMeaning(String(code), String(message));
  return why === undefined ? undefined : new LeaseholdError("tls", why);
}

/** The first byte of what a server says to this. */
async function answer(address: Address, question: string): Promise<number | undefined> {
  const socket = builtin("net")?.connect(address);
  return socket && firstOf(socket, (end) => {
    socket.on("error", () => end());
    socket.on("data", (data: Uint8Array) => end(data[0]));
    socket.on("connect", () => socket.write(question, "latin1"));
  });
}

/** Resolves to what is found first on a connection; `undefined` if it closes before, or after the time limit. */
function firstOf<T>(socket: Socket, listen: (end: (found?: T) => void) => void): Promise<T | undefined> {
  return new Promise((resolve) => {
    const end = (found?: T) => {
      stopTimer(timer);
      socket.destroy();
      resolve(found);
    };
    const timer = later(LIMIT, end, true);
    listen(end);
    socket.on("close", () => end());
  });
}
