import { type Adapter, adapt, type RedisClient } from "../../adapters/index.js";
import { isIoredis } from "../../adapters/ioredis.js";
import { isNodeRedis } from "../../adapters/node-redis.js";
import { config } from "../../common/check.js";

/** One argument of a script, as clients take it. */
export type Argument = string | Uint8Array;

/** Runs scripts; replies and errors are the client's own. */
export interface Runner {
  readonly clustered: boolean;
  readonly secrets: readonly string[];
  /** By its hash; rejects with `NOSCRIPT` if the server has not got it. */
  evalsha?(sha: string, keys: string[], args: Argument[]): Promise<unknown>;
  eval(script: string, keys: string[], args: Argument[]): Promise<unknown>;
}

/** Throws a `LeaseholdError` of code `config` if it is no Redis client, or has a key prefix. */
export function runnerOf(client: RedisClient): Runner {
  const adapter = adapt(client);
  const { clustered, secrets } = adapter;
  return { clustered, secrets, ...runsOf(client, adapter) };
}

function runsOf(client: RedisClient, adapter: Adapter): Pick<Runner, "evalsha" | "eval"> {
  // Their types say strings, but they take bytes as well, in a Buffer.
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
      throw config("this Redis client takes strings and numbers, but no bytes");
    }
    return argument;
  });
}
