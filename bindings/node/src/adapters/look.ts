import { config } from "../common/check.js";
import { LeaseholdError } from "../common/errors.js";
import { later, stopTimer } from "./shared.js";
import { builtin, type Socket, type TlsOptions } from "./tls.js";
import { tlsErrorMeaning } from "./tls-errors.js";
import type { Address, Target } from "./url.js";

/** The time limit of a probe, in milliseconds. */
const LIMIT = 1_000;

/** The milliseconds after which a slow server is probed. A server of another protocol often looks slow. */
const SLOW = 500;

/**
 * A ClientHello for TLS 1.2 and 1.3, which every such server answers. The same as in
 * `core/src/adapter/fred/endpoint.rs`.
 */
const HELLO =
  "\x16\x03\x01\x00\x35\x01\x00\x00\x31\x03\x03leasehold looks who answers here\x00\x00\x0a" +
  "\xc0\x2b\xc0\x2f\xc0\x2c\xc0\x30\x00\x2f\x01\x00";

/**
 * Probes a server that cannot be connected to, on its own connection, and resolves to a TLS problem if it
 * finds one.
 *
 * It finds that only one side speaks TLS, or that one side does not trust the other. Most clients report
 * these as a timeout or a closed connection; some say so in their `error`.
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

/**
 * Probes a server while it is slow to connect. Never resolves if nothing is wrong with it, or once it is
 * `over`.
 */
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

/**
 * Returns why one side does not trust the other. A server checks a client's certificate only after the client
 * has finished its handshake.
 */
async function refusal(address: Address, options: TlsOptions): Promise<LeaseholdError | undefined> {
  const socket = builtin("tls")?.connect({ ...address, ...options });
  return socket && firstOf(socket, (end) => socket.on("error", (error) => end(tlsError(error))));
}

function tlsError(error: unknown): LeaseholdError | undefined {
  const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
  const why = tlsErrorMeaning(String(code), String(message));
  return why === undefined ? undefined : new LeaseholdError("tls", why);
}

/** Sends this to a server and returns the first byte of its answer. */
async function answer(address: Address, question: string): Promise<number | undefined> {
  const socket = builtin("net")?.connect(address);
  return socket && firstOf(socket, (end) => {
    socket.on("error", () => end());
    socket.on("data", (data: Uint8Array) => end(data[0]));
    socket.on("connect", () => socket.write(question, "latin1"));
  });
}

/**
 * Resolves to the first result on a connection, or to `undefined` if the connection closes first or the time
 * limit passes.
 */
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
