// Moves money between accounts that several callers want at once, in both directions. Each caller holds both accounts, and
// a guard checks the token of each.
//
//   LEASEHOLD_URL=redis://127.0.0.1:6379 node transfer.mjs
import { Locker } from "leasehold";
import { Gate } from "leasehold/fence";

/** The storage: the balances of both accounts, and the guard in front of them. */
const balances = { "account/a": 100, "account/b": 100 };
const gate = new Gate();

const locker = await Locker.connect(process.env.LEASEHOLD_URL ?? "memory://transfer");
const [a, b] = Object.keys(balances);
// Some callers name the accounts the other way round, and still nobody waits in a circle.
const callers = [[a, b], [b, a], [a, b], [b, a], [a, b]].map(([from, to]) =>
  locker.all([from, to]).using((bundle) => pay(bundle, from, to)),
);
await Promise.all(callers);
console.log("balances:", Object.values(balances));
await locker.shutdown();

/** Moves 10, if no later holder of either account was here before. */
function pay({ tokens }, from, to) {
  for (const [name, token] of tokens) gate.check(name, token);
  balances[from] -= 10;
  balances[to] += 10;
  console.log(`${from} to ${to}:`, Object.values(balances));
}
