// Every item of one language is in the other language, too, or the table in bindings/README.md says why not.
import assert from "node:assert/strict";
import { test } from "../support/test.mjs";
import { javascriptItems } from "./javascript.mjs";
import { rustItems, rustSource } from "./rust.mjs";
import { problems, rows } from "./table.mjs";

const rust = rustItems();
const javascript = javascriptItems();

test("every public item of both is in the table, and nothing else", () => {
  assert.deepEqual(problems(rust, javascript, rows()), []);
});

test("the items are found", () => {
  // Catches a parse that finds too little: every table would be complete against it.
  for (const item of [
    "Locker::with_fred",
    "Lock::DEFAULT_TTL",
    "LeaseEvent::AtRisk.error",
    "RwLock::max_line",
    "ErrorKind::StaleToken",
    "Inspection::last_token",
    "fence::sql::begin_with",
    "fence::object::FencedStore::probe",
    "fence::http::FenceLayer::by_path",
  ]) {
    assert.ok(rust.has(item), item);
  }
  for (const item of [
    "Locker.from",
    "Lease.signal",
    "LeaseEvent.atRisk.error",
    "ErrorCode.internal",
    "LockOptions.ttl",
    "fence.StaleTokenError.highest",
    "init",
  ]) {
    assert.ok(javascript.has(item), item);
  }
  const ofHosts = [...rust].filter((item) => /^(engine|protocol|time)::|^(Engine|Settings|Hub)\b/.test(item));
  assert.deepEqual(ofHosts, []);
});

// The negative controls: a new item on one side is noticed, wherever it is.
const gains = [
  ["client/lock.rs", "impl Lock {\n", "    pub async fn invented<T>(&self) {}\n", "Lock::invented"],
  ["client/builder.rs", "impl Builder {\n", "    pub const fn invented(self) {}\n", "Builder::invented"],
  ["../engine/src/event.rs", "pub enum LossReason {\n", "    Invented,\n", "LossReason::Invented"],
  ["../engine/src/event.rs", "    Lagged {\n", "        invented: u64,\n", "LeaseEvent::Lagged.invented"],
  ["../engine/src/error/kind.rs", "pub enum ErrorKind {\n", "    Invented,\n", "ErrorKind::Invented"],
  ["../engine/src/engine/inspection.rs", "pub struct Inspection {\n", "    pub invented: u32,\n", "Inspection::invented"],
  ["fence/object/probe.rs", "impl FencedStore {\n", "    pub fn invented() {}\n", "fence::object::FencedStore::invented"],
  ["fence/sql/mod.rs", "\npub async fn begin_with", "\npub fn invented() {}\n", "fence::sql::invented"],
];

for (const [path, before, line, item] of gains) {
  test(`a new ${item} in Rust is noticed`, () => {
    const more = rustItems((file) => (file === path ? insert(rustSource(file), before, line) : rustSource(file)));
    assert.deepEqual(problems(more, javascript, rows()), [`rust: ${item} is not in the table`]);
  });
}

const changes = [
  ["index.d.ts", "declare class Lock {\n", "    invented(): void;\n", "Lock.invented"],
  ["index.d.ts", "declare class Locker {\n", "    static invented(): Locker;\n", "Locker.invented"],
  ["index.d.ts", "interface LockOptions {\n", "    readonly invented?: number;\n", "LockOptions.invented"],
  ["fence.d.ts", "declare class Fenced {\n", "    get invented(): number;\n", "fence.Fenced.invented"],
  ["fence.d.ts", "", "\nexport declare function invented(): void;\n", "fence.invented"],
];

for (const [path, before, line, item] of changes) {
  test(`a new ${item} in JavaScript is noticed`, () => {
    const more = javascriptItems((file, text) => (file === path ? insert(text, before, line) : text));
    assert.deepEqual(problems(rust, more, rows()), [`javascript: ${item} is not in the table`]);
  });
}

test("a lost item is noticed, and so is a row without a reason", () => {
  const without = (items, lost) => new Set([...items].filter((item) => item !== lost));
  const lost = problems(without(rust, "Lease::renew"), without(javascript, "Lease.renew"), rows());
  assert.deepEqual(lost, ["rust: there is no Lease::renew", "javascript: there is no Lease.renew"]);
  const table = rows("\n## The same in Rust and in JavaScript\n| `Lease` | | |\n");
  assert.match(problems(new Set(["Lease"]), new Set(), table)[0], /does not say why/);
});

function insert(text, before, line) {
  const at = text.indexOf(before);
  assert.ok(at >= 0, `there is no ${before}`);
  return text.slice(0, at + before.length) + line + text.slice(at + before.length);
}
