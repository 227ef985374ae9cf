// The Node counterpart of the program `holder visit` of the Rust tests: node visitor.mjs "URL …" NAME FILE
// ROUNDS lock|bare
import { appendFile, open, rm } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Locker } from "../../dist/index.js";

const [, , url, name, file, rounds, how] = process.argv;
const urls = url.split(" ");
const locker = await (urls.length === 1 ? Locker.connect(url) : Locker.quorum(urls));
for (let round = 0; round < Number(rounds); round++) {
  const lease = how === "lock" ? await locker.lock(name).acquire() : undefined;
  await visit(lease?.token);
  await lease?.release();
}
await locker.shutdown();
console.log("done");

/** Creates a file that must not exist, stays a moment, records its token, and removes the file. */
async function visit(token) {
  const entered = await open(file, "wx").catch((error) => {
    if (error.code !== "EEXIST") {
      throw error;
    }
  });
  if (entered === undefined) {
    console.log("overlap");
  }
  await sleep(2);
  if (token !== undefined) {
    await appendFile(`${file}.tokens`, `${token}\n`);
  }
  if (entered !== undefined) {
    await entered.close();
    await rm(file);
  }
}
