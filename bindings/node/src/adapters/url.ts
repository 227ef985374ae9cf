import { LeaseholdError } from "../common/errors.js";

/**
 * The parts of a store's URL.
 *
 * The grammar is that of `core/src/url.rs`. `tests/vectors/urls.json` lists URLs that both accept and refuse.
 * Errors show no more of a URL than its scheme, hosts and ports, or its socket, and not even these if they
 * may be a piece of a password.
 */
export interface Target extends TlsFiles {
  readonly kind: StoreKind;
  /** The servers, sentinels or nodes; empty for a socket. */
  readonly nodes: readonly Address[];
  readonly path: string | undefined;
  readonly tls: boolean;
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly database: number;
  /** The name of the service, and the credentials for the sentinels. Only sentinel URLs have them. */
  readonly service: string | undefined;
  readonly sentinelUsername: string | undefined;
  readonly sentinelPassword: string | undefined;
  /** The URL as messages may show it. */
  readonly shown: string;
}

/** How to connect to a {@link Target}. */
export interface Opening {
  /** True if the server need not be up yet. Problems with it are then reported to the link. */
  readonly lazily: boolean;
  /** Milliseconds to make a connection, and for the reply to each of its first requests. */
  readonly timeout: number;
}

/** PEM files, and the name that the server's certificate must have. */
export interface TlsFiles {
  readonly ca: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly serverName: string | undefined;
}

export interface Address {
  readonly host: string;
  readonly port: number;
}

type StoreKind = "server" | "socket" | "cluster" | "sentinel";

const FORMS =
  "redis://[user:password@]host[:port][/database] (rediss:// for TLS), " +
  "unix:///path/to/socket[?db=database], redis-cluster://host[:port],host[:port],…, " +
  "redis-sentinel://host[:port],host[:port],…/service[/database] or memory://[name]";

const ENCODE = "percent-encode / ? # and @ in a password";

const KINDS: Readonly<Record<string, readonly [StoreKind, boolean]>> = {
  unix: ["socket", false],
  redis: ["server", false],
  rediss: ["server", true],
  "redis-cluster": ["cluster", false],
  "rediss-cluster": ["cluster", true],
  "redis-sentinel": ["sentinel", false],
  "rediss-sentinel": ["sentinel", true],
};

const PARAMETERS: Readonly<Record<StoreKind, readonly string[]>> = {
  server: [],
  socket: ["db"],
  cluster: ["node"],
  sentinel: ["node", "sentinelServiceName", "sentinelUsername", "sentinelPassword"],
};

const TLS_PARAMETERS = ["ca", "cert", "key", "serverName"];

/** A short word of letters, digits, `+`, `-` and `.` that begins with a letter. */
const WORD = /^[a-z][a-z0-9+.-]{0,31}$/i;

/** Parses the URL of a Redis store. Throws a `LeaseholdError` with the code `config` if it is not valid. */
export function parseUrl(given: string): Target {
  if (typeof given !== "string") {
    throw bad("the store's URL is not a string");
  }
  const text = given.trim();
  const at = text.indexOf("://");
  const scheme = text.slice(0, Math.max(at, 0));
  if (!WORD.test(scheme)) {
    const begins = text.includes(":") && kindOf(text.slice(0, text.indexOf(":")));
    throw bad(begins ? "the store's URL has no // after its scheme" : "the store's URL has no scheme");
  }
  if (/\p{Cc}/u.test(text)) {
    throw bad("the store's URL contains a control character");
  }
  if (text.includes("#")) {
    throw bad("the store's URL has a fragment (#…); percent-encode special characters");
  }
  const known = kindOf(scheme);
  if (known === undefined) {
    throw bad(`the store's URL has the unknown scheme ${JSON.stringify(scheme)}`);
  }
  const [rest, query] = split(text.slice(at + 3), "?");
  const [authority, behind] = split(rest, "/");
  const path = behind === undefined ? "" : `/${behind}`;
  return new Parser(scheme.toLowerCase(), ...known, !text.includes("@")).target(authority, path, query ?? "");
}

class Parser {
  constructor(
    private readonly scheme: string,
    private readonly kind: StoreKind,
    private readonly tls: boolean,
    /** True if the URL has no credentials, so that the rest of it cannot be a piece of a password. */
    private readonly mayName: boolean,
  ) {}

  target(authority: string, path: string, query: string): Target {
    const kind = this.kind;
    const end = authority.lastIndexOf("@");
    const [username, password = ""] = split(authority.slice(0, Math.max(end, 0)), ":");
    const credentials = {
      username: decoded(username, "user") || undefined,
      password: decoded(password, "password") || undefined,
    };
    const nodes = this.#hosts(authority.slice(end + 1));
    const { node: more, ...parameters } = this.#parameters(query);
    nodes.push(...(more ?? []).map((text) => this.#node(text)));
    const of = (name: string) => parameters[name]?.[0];
    const socket = kind === "socket" ? socketOf(path) : undefined;
    let database = of("db");
    let service = of("sentinelServiceName");
    if (socket === undefined) {
      let left: string | undefined = path.slice(1);
      if (kind === "sentinel" && service === undefined) {
        [service, left] = split(left, "/");
        service = decoded(service, "service") || undefined;
      }
      database = left || undefined;
    }
    if (kind === "cluster" && database !== undefined) {
      throw bad("the store's URL names a database, but a cluster has none to select");
    }
    const number = database === undefined ? 0 : databaseOf(database);
    if (kind === "sentinel" && service === undefined) {
      throw bad("the store's URL names no sentinel service");
    }
    // Without a password clients send no user either, and would have the rights of the default user.
    const unsent = (user: string | undefined, password: string | undefined) => user !== undefined && password === undefined;
    if (unsent(credentials.username, credentials.password) || unsent(of("sentinelUsername"), of("sentinelPassword"))) {
      throw bad("the store's URL has a user and no password; add the password (any, for a user who needs none)");
    }
    if ((of("cert") === undefined) !== (of("key") === undefined)) {
      throw bad(`the parameters "cert" and "key" in the store's URL must be given together`);
    }
    return {
      ...credentials,
      kind,
      nodes,
      path: socket,
      tls: this.tls,
      database: number,
      service,
      sentinelUsername: of("sentinelUsername"),
      sentinelPassword: of("sentinelPassword"),
      ca: of("ca"),
      cert: of("cert"),
      key: of("key"),
      serverName: of("serverName"),
      shown: `${this.scheme}://${socket ?? nodes.slice(0, 1).map(shownAt)}`,
    };
  }

  #hosts(hosts: string): Address[] {
    if (this.kind === "socket") {
      if (hosts !== "") {
        throw bad("the store's URL names no socket path");
      }
      return [];
    }
    const nodes = hosts.split(",").map((text) => this.#node(text));
    if (this.kind === "server" && nodes.length > 1) {
      throw bad("the store's URL names several hosts, which only redis-cluster:// and redis-sentinel:// may");
    }
    return nodes;
  }

  #node(text: string): Address {
    const colon = text.indexOf(":", text.indexOf("]") + 1);
    const host = colon < 0 ? text : text.slice(0, colon);
    const digits = colon < 0 ? undefined : text.slice(colon + 1);
    if (digits?.includes(":")) {
      throw bad("an IPv6 address in the store's URL must be in brackets");
    }
    if (host === "") {
      throw bad("the store's URL names no host");
    }
    const bracketed = host.startsWith("[") && host.endsWith("]");
    if (bracketed && !isIpv6(host)) {
      throw bad("a host in the store's URL is in brackets but is not an IPv6 address");
    }
    if (!bracketed && !/^[a-z0-9._-]+$/i.test(host)) {
      throw bad(`a host in the store's URL contains an invalid character; ${ENCODE}`);
    }
    const usual = this.kind === "sentinel" ? 26_379 : 6_379;
    const port = digits === undefined ? usual : numberOf(digits);
    if (!(port >= 1 && port <= 65_535)) {
      const of = this.mayName ? ` of ${JSON.stringify(host)}` : "";
      throw bad(`the port${of} in the store's URL must be a number from 1 to 65535`);
    }
    return { host: bracketed ? host.slice(1, -1) : host, port };
  }

  #parameters(query: string): Record<string, string[]> {
    const read: Record<string, string[]> = Object.create(null);
    for (const part of query.split("&").filter(Boolean)) {
      const [name, value = ""] = split(part, "=");
      const ofTls = TLS_PARAMETERS.includes(name);
      if (!ofTls && !PARAMETERS[this.kind].includes(name)) {
        const named = this.mayName && /^[a-z_-]+$/i.test(name) ? `: ${JSON.stringify(name)}` : "";
        throw bad(`the store's URL has an unknown parameter${named}; ${ENCODE}`);
      }
      const values = (read[name] ??= []);
      if (name !== "node" && values.length > 0) {
        throw bad(`the parameter "${name}" occurs twice in the store's URL`);
      }
      if (value === "") {
        throw bad(`the parameter "${name}" in the store's URL is empty`);
      }
      values.push(decoded(value, name));
      if (ofTls && !this.tls) {
        throw bad(`the parameter "${name}" in the store's URL needs TLS; use a scheme that begins with rediss`);
      }
    }
    return read;
  }
}

function kindOf(scheme: string): readonly [StoreKind, boolean] | undefined {
  const name = scheme.toLowerCase();
  return Object.hasOwn(KINDS, name) ? KINDS[name] : undefined;
}

function socketOf(path: string): string {
  const socket = decoded(path, "path");
  if (socket.length < 2) {
    throw bad("the store's URL names no socket path");
  }
  return socket;
}

function shownAt({ host, port }: Address): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

function isIpv6(bracketed: string): boolean {
  try {
    return new URL(`http://${bracketed}`).hostname !== "";
  } catch {
    return false;
  }
}

function databaseOf(digits: string): number {
  const number = numberOf(digits);
  if (!(number <= 255)) {
    throw bad(`the database in the store's URL must be a number from 0 to 255; ${ENCODE}`);
  }
  return number;
}

function numberOf(digits: string): number {
  return /^\d+$/.test(digits) ? Number(digits) : Number.NaN;
}

/** Returns the text before the first mark, and the text after it, if there is a mark. */
function split(text: string, mark: string): [string, string | undefined] {
  const at = text.indexOf(mark);
  return at < 0 ? [text, undefined] : [text.slice(0, at), text.slice(at + mark.length)];
}

function decoded(text: string, what: string): string {
  if (/%(?![0-9a-f]{2})/i.test(text)) {
    throw bad(`the ${what} in the store's URL has a % without two hex digits after it; write %25 for a literal %`);
  }
  try {
    return decodeURIComponent(text);
  } catch {
    throw bad(`the ${what} in the store's URL is not valid UTF-8`);
  }
}

function bad(what: string): LeaseholdError {
  return new LeaseholdError("config", `${what}; a store's URL has the form ${FORMS}`);
}
