// A buyer in a process of its own: started by `startBuyer`, it runs this very file.
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Locker } from "leasehold";
import { fail, shutdownAtSignals } from "../common.mjs";
import { buy, isRefused } from "./buyer.mjs";
import { RedisShop } from "./shop.mjs";

const FILE = fileURLToPath(import.meta.url);
/** The URL is passed in the environment, because everybody may read the arguments of a process. */
const URL_VARIABLE = "OVERSELL_URL";

export function startBuyer(act, url, shop) {
  const child = fork(FILE, [act, shop], { env: { ...process.env, [URL_VARIABLE]: url } });
  const message = async (kind) => {
    for (;;) {
      const [said] = await Promise.race([once(child, "message"), once(child, "exit").then(died)]);
      if (said.kind === kind) return said;
    }
  };
  return {
    holds: act === "paused" ? message("holds") : undefined,
    result: message("result"),
    stop: () => child.kill("SIGSTOP"),
    goOn() {
      child.kill("SIGCONT");
      child.send("go on");
    },
  };
}

function died([code, signal]) {
  throw new Error(`a buyer's process ended with ${code ?? signal}`);
}

async function main(act, name) {
  const url = process.env[URL_VARIABLE];
  const shop = new RedisShop(url, name);
  const locker = await Locker.connect(url, { namespace: name });
  shutdownAtSignals(locker);
  const pause = async () => {
    process.send({ kind: "holds" });
    await once(process, "message");
  };
  const result = await buy(act, shop, locker, pause).then((bought) => ({ bought }), isRefused);
  await Promise.all([locker.shutdown(), shop.shutdown()]);
  process.send({ kind: "result", ...result }, () => process.disconnect());
}

if (process.argv[1] === FILE) {
  await main(...process.argv.slice(2)).catch(fail);
}
