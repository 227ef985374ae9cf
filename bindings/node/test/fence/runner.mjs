// Runs one tick's work and does not complete it at the store: the test kills it. node runner.mjs <redis> <file> <name>
// <tick> <ttl> recorded|unrecorded
import Database from "better-sqlite3";
import { doneIn, fencedTransaction } from "../../dist/fence.js";
import { Locker } from "../../dist/index.js";

const [, , redis, file, name, tick, ttl, how] = process.argv;
const locker = await Locker.connect(redis);
const { turn } = await locker.job(name, { ttl: Number(ttl) }).claim(Number(tick));
await fencedTransaction(new Database(file), name, turn, (tx) => {
  if (how === "recorded" && !doneIn(tx, turn)) throw new Error("nobody had the tick before");
  tx.prepare("INSERT INTO history VALUES (?, ?, ?)").run(name, turn.token, turn.tick);
});
console.log("committed");
setInterval(() => {}, 1_000);
