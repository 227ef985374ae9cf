import { LeaseholdError } from "../common/errors.js";

/** What a URL names. No error shows more of a URL than its scheme, hosts and ports, or its socket. */
export interface Target {
  readonly kind: "server" | "socket" | "cluster" | "sentinel";
  /** The servers, sentinels or nodes; none for a socket. */
  readonly nodes: readonly Address[];
  readonly path: string | undefined;
  readonly tls: boolean;
  readonly username: string | undefined;
  readonly password: string | undefined;
  readonly database: number;
  /** Only for sentinels: the name of the service, and how to log in to them. */
  readonly service: string | undefined;
  readonly sentinelUsername: string | undefined;
  readonly sentinelPassword: string | undefined;
  /** The URL as messages may show it. */
  readonly shown: string;
}

export interface Address {
  readonly host: string;
  readonly port: number;
}

const FORMS =
  "redis://[user:password@]host[:port][/database] (rediss:// for TLS), " +
  "unix:///path/to/socket[?db=database], redis-cluster://host:port[?node=host:port], " +
  "redis-sentinel://host:port[/database]?sentinelServiceName=name[&node=host:port] or memory://[name]";

const ENCODE = "percent-encode / ? # and @ in a password";
const UNKNOWN_PARAMETER = `the store's URL has a parameter that is not known; ${ENCODE}`;

const KINDS: Record<string, readonly [Target["kind"], boolean, number]> = {
  "redis:": ["server", false, 6379],
  "rediss:": ["server", true, 6379],
  "redis-cluster:": ["cluster", false, 6379],
  "rediss-cluster:": ["cluster", true, 6379],
  "redis-sentinel:": ["sentinel", false, 26379],
  "rediss-sentinel:": ["sentinel", true, 26379],
};

/** Reads a URL of a Redis store. Throws a `LeaseholdError` of code `config` if it cannot be read. */
export function parseUrl(text: string): Target {
  if (typeof text !== "string") {
    throw bad("the store's URL is not a string");
  }
  const url = read(text);
  if (url.hash !== "" || text.includes("#")) {
    throw bad("the store's URL has a fragment (#…); percent-encode special characters");
  }
  if (url.protocol === "unix:") {
    return socket(url);
  }
  const kind = Object.hasOwn(KINDS, url.protocol) ? KINDS[url.protocol] : undefined;
  if (!kind) {
    throw bad(`the URL scheme ${JSON.stringify(url.protocol.slice(0, -1))} is not known`);
  }
  return servers(url, ...kind);
}

function read(text: string): URL {
  try {
    return new URL(text);
  } catch {
    throw bad(
      /^[a-z][a-z0-9+.-]*:\/\//i.test(text)
        ? "the store's URL cannot be read"
        : "the store's URL has no scheme",
    );
  }
}

function servers(url: URL, kind: Target["kind"], tls: boolean, port: number): Target {
  const parameters = parametersOf(url, {
    server: [],
    socket: [],
    cluster: ["node"],
    sentinel: ["node", "sentinelServiceName", "sentinelUsername", "sentinelPassword"],
  }[kind]);
  const first = address(url.host, port);
  const nodes = [first, ...parameters.getAll("node").map((node) => address(node, port))];
  const service = parameters.get("sentinelServiceName") || undefined;
  if (kind === "sentinel" && !service) {
    throw bad("the store's URL has no sentinelServiceName");
  }
  const database = url.pathname.replace(/^\//, "");
  if (kind === "cluster" && database !== "") {
    throw bad("a cluster has no databases to choose from");
  }
  return {
    ...credentials(url),
    kind,
    nodes,
    path: undefined,
    tls,
    database: database === "" ? 0 : databaseOf(database),
    service,
    sentinelUsername: parameters.get("sentinelUsername") ?? undefined,
    sentinelPassword: parameters.get("sentinelPassword") ?? undefined,
    shown: `${url.protocol}//${url.hostname}:${first.port}`,
  };
}

function socket(url: URL): Target {
  const path = decoded(url.pathname, "path");
  if (url.host !== "" || path.length < 2 || !path.startsWith("/")) {
    throw bad("the store's URL names no socket");
  }
  const database = parametersOf(url, ["db"]).get("db");
  return {
    ...credentials(url),
    kind: "socket",
    nodes: [],
    path,
    tls: false,
    database: database === null ? 0 : databaseOf(database),
    service: undefined,
    sentinelUsername: undefined,
    sentinelPassword: undefined,
    shown: `unix://${path}`,
  };
}

function parametersOf(url: URL, known: readonly string[]): URLSearchParams {
  const keys = [...url.searchParams.keys()];
  const repeated = keys.some((key, at) => key !== "node" && keys.indexOf(key) !== at);
  if (url.search !== "" && (repeated || keys.some((key) => !known.includes(key)))) {
    throw bad(UNKNOWN_PARAMETER);
  }
  return url.searchParams;
}

function address(text: string, usualPort: number): Address {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-f:.]+)\]|([^:/@\s]+))(?::(\d{1,5}))?$/i.exec(text) ?? [];
  const host = bracketed ?? (plain && decoded(plain, "host"));
  const number = port === undefined ? usualPort : Number(port);
  if (!host) {
    throw bad("the store's URL names no host, or one that cannot be read");
  }
  if (number < 1 || number > 65_535) {
    throw bad("a port in the store's URL is not a number from 1 to 65535");
  }
  return { host, port: number };
}

function credentials(url: URL): Pick<Target, "username" | "password"> {
  return {
    username: decoded(url.username, "user") || undefined,
    password: decoded(url.password, "password") || undefined,
  };
}

function databaseOf(digits: string): number {
  const number = /^\d{1,3}$/.test(digits) ? Number(digits) : Number.NaN;
  if (!(number <= 255)) {
    throw bad(`the database in the store's URL is not a number from 0 to 255; ${ENCODE}`);
  }
  return number;
}

function decoded(text: string, what: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw bad(`the ${what} in the store's URL is not UTF-8`);
  }
}

function bad(what: string): LeaseholdError {
  return new LeaseholdError("config", `${what}; it is of the form ${FORMS}`);
}
