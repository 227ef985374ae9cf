import { config } from "../common/check.js";
import { printable } from "../common/printable.js";
import type { TlsFiles } from "./url.js";

/** Options for Node's `tls.connect`. */
export interface TlsOptions {
  servername?: string;
  checkServerIdentity?: CheckServerIdentity;
  ca?: string;
  cert?: string;
  key?: string;
}

export type Socket = import("node:net").Socket;

type CheckServerIdentity = typeof import("node:tls").checkServerIdentity;

/**
 * Reads the files that a URL names. Rejects with a `LeaseholdError` with the code `config` that names the
 * file if one cannot be read or used.
 */
export async function readTls({ ca, cert, key, serverName }: TlsFiles): Promise<TlsOptions> {
  const options: TlsOptions = {};
  if (serverName !== undefined) {
    const { isIP } = needed("net");
    const { checkServerIdentity } = needed("tls");
    // An IP address is not a valid SNI name.
    options.servername = isIP(serverName) > 0 ? "" : serverName;
    options.checkServerIdentity = (_, certificate) => checkServerIdentity(serverName, certificate);
  }
  if (ca !== undefined) {
    options.ca = await certificateIn(ca, "ca");
  }
  if (cert !== undefined && key !== undefined) {
    const { X509Certificate, createPrivateKey } = needed("crypto");
    const certificate = await certificateIn(cert, "client certificate");
    const secret = await textOf(key, "client key");
    Object.assign(options, { cert: certificate, key: secret });
    const own = at(key, "client key");
    const pair = usable(() => new X509Certificate(certificate).checkPrivateKey(createPrivateKey(secret)));
    if (pair === undefined) {
      throw config(`${own} has no private key in PEM`);
    }
    if (!pair) {
      throw config(`${own} is not the key of ${at(cert, "client certificate")}`);
    }
  }
  return options;
}

async function certificateIn(path: string, what: string): Promise<string> {
  const { X509Certificate } = needed("crypto");
  const text = await textOf(path, what);
  if (!text.includes("-----BEGIN CERTIFICATE-----")) {
    throw config(`${at(path, what)} has no certificate in PEM`);
  }
  if (usable(() => new X509Certificate(text)) === undefined) {
    throw config(`${at(path, what)} is not valid PEM, or has a certificate that cannot be read`);
  }
  return text;
}

async function textOf(path: string, what: string): Promise<string> {
  const { readFile } = needed("fs/promises");
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    const { code } = error as { code?: unknown };
    const why = code === "ENOENT" ? "there is no such file" : code === "EACCES" ? "permission denied" : String(code);
    throw config(`${at(path, what)} cannot be read: ${why}`);
  }
}

interface Builtins {
  readonly net: typeof import("node:net");
  readonly tls: typeof import("node:tls");
  readonly crypto: typeof import("node:crypto");
  readonly "fs/promises": typeof import("node:fs/promises");
}

/**
 * Returns a module of Node without an import, which bundlers for browsers would try to resolve; nothing in
 * other runtimes.
 */
export function builtin<N extends keyof Builtins>(name: N): Builtins[N] | undefined {
  const { process } = globalThis as { process?: { getBuiltinModule?(name: string): unknown } };
  return process?.getBuiltinModule?.(`node:${name}`) as Builtins[N] | undefined;
}

function needed<N extends keyof Builtins>(name: N): Builtins[N] {
  const found = builtin(name);
  if (found === undefined) {
    throw config("the parameters of TLS need Node 20.16, 22.3 or newer; else give a client of your own to Locker.from");
  }
  return found;
}

function usable<T>(make: () => T): T | undefined {
  try {
    return make();
  } catch {
    return undefined;
  }
}

function at(path: string, what: string): string {
  return `the ${what} file ${printable(path)}`;
}
