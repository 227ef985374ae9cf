import { type Adapter, adapt, type RedisClient } from "../../adapters/index.js";
import { isIoredis } from "../../adapters/ioredis.js";
import { isNodeRedis } from "../../adapters/node-redis.js";
import { config } from "../../common/check.js";

/** One argument of a script, as clients take it. */
export type Argument = string | Uint8Array;

/** Runs scripts. Replies and errors are the client's own. */
export interface Runner {
  readonly clustered: boolean;
  readonly secrets: readonly string[];
  /** Runs a script by its hash. Rejects with `NOSCRIPT` if the server does not have it. */
  evalsha?(sha: string, keys: string[], args: Argument[]): Promise<unknown>;
  eval(script: string, keys: string[], args: Argument[]): Promise<unknown>;
}

/**
 * Makes a runner for a client. Throws a `LeaseholdError` with the code `config` if it is not a Redis client,
 * or has a key prefix.
 */
export function runnerOf(client: RedisClient): Runner {
  const adapter = adapt(client);
  const { clustered, secrets } = adapter;
  return { clustered, secrets, ...runsOf(client, adapter) };
}

function runsOf(client: RedisClient, adapter: Adapter): Pick<Runner, "evalsha" | "eval"> {
  // The clients' types say strings, but they also take bytes, in a Buffer.
  const texts = (args: Argument[]) => args.map(buffered) as string[];
  if (isIoredis(client)) {
    return {
      evalsha: (sha, keys, args) => client.evalsha(sha, keys.length, ...keys, ...texts(args)),
      eval: (script, keys, args) => client.eval(script, keys.length, ...keys, ...texts(args)),
    };
  }
  if (isNodeRedis(client)) {
    return {
      evalsha: (sha, keys, args) => client.evalSha(sha, { keys, arguments: texts(args) }),
      eval: (script, keys, args) => client.eval(script, { keys, arguments: texts(args) }),
    };
  }
  return {
    ...(adapter.evalsha && {
      evalsha: async (sha, keys, args) => adapter.evalsha?.(sha, keys, onlyTexts(args)),
    }),
    eval: async (script, keys, args) => adapter.eval(script, keys, onlyTexts(args)),
  };
}

function buffered(argument: Argument): Argument {
  if (typeof argument === "string") {
    return argument;
  }
  return Buffer.from(argument.buffer, argument.byteOffset, argument.byteLength);
}

function onlyTexts(args: Argument[]): string[] {
  return args.map((argument) => {
    if (typeof argument !== "string") {
      throw config("this Redis client cannot send bytes; give a string or a number");
    }
    return argument;
  });
}
