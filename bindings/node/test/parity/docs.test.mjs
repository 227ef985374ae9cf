// Every call that the documentation names exists, in the language that the page names it for. Blocks of code
// are not read here: they are programs that run as tests of their own.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "../support/test.mjs";
import { javascriptItems } from "./javascript.mjs";
import { rustItems } from "./rust.mjs";

const ROOT = new URL("../../../../", import.meta.url);
const DOCS = readdirSync(new URL("docs/book/src/", ROOT), { recursive: true }).filter((file) => file.endsWith(".md"));
const READMES = ["", "bindings/", "bindings/cli/", "bindings/node/", "examples/"];
const PAGES = [...READMES.map((folder) => `${folder}README.md`), ...DOCS.map((file) => `docs/book/src/${file}`)]
  // The names on this page are those of tests.
  .filter((path) => path !== "docs/book/src/mutants.md");

/** Names that are not Leasehold's, and their owners. */
const OTHERS = new Map([
  ["signal.reason", "AbortSignal"],
  ["performance.now", "the platform"],
  ["console.log", "the platform"],
  ["JSON.stringify", "the platform"],
  ["process.nextTick", "Node"],
  ["mock.timers", "Node's test runner"],
  ["jest.useFakeTimers", "Jest"],
  ["vi.useFakeTimers", "Vitest"],
  ["mutex.release", "redis-semaphore"],
]);

/** The types of variables in examples. */
const TYPES = { locker: "Locker", lock: "Lock", lease: "Lease", job: "Job", turn: "Turn", bundle: "Bundle", permit: "Permit", semaphore: "Semaphore", error: "LeaseholdError" };
const BOTH = ["rust", "javascript"];
const ITEMS = { rust: [...rustItems()], javascript: [...javascriptItems()] };

const page = (path) => readFileSync(new URL(path, ROOT), "utf8");

/**
 * Returns true if a language has an item of this name. A name that begins with a dot may be a member of
 * anything.
 */
function has(language, name) {
  const dot = language === "rust" ? "::" : ".";
  const text = name.replaceAll(".", dot);
  return ITEMS[language].some((item) =>
    name.startsWith(".") ? `${dot}${item}`.endsWith(text) : `${item}${dot}`.startsWith(text + dot),
  );
}

/** Returns the languages of a heading, or of a column's head; both if it names none. */
function spokenOf(heading = "") {
  const found = [/\bRust\b/, /\b(JavaScript|Node)\b/].map((language) => language.test(heading));
  return found[0] === found[1] ? BOTH : BOTH.filter((_, at) => found[at]);
}

/** Yields the inline code of a page, each piece with the languages that it may be in. */
function* inline(path, text) {
  let [section, head] = [BOTH];
  for (const part of text.replace(/^```[^]*?^```/gm, "").split(/\n\n|\n(?=[|#])/)) {
    const isRow = part.startsWith("|");
    const cells = isRow ? part.split(/(?<!\\)\|/).slice(1, -1) : [part];
    head = isRow ? (head ?? cells) : undefined;
    if (part.startsWith("#")) {
      section = path.startsWith("bindings/node/") ? ["javascript"] : spokenOf(part);
    }
    // Another test reads the parity tables. In the tables of `coming-from`, the first column has another
    // lock's calls.
    const isParity = isRow && path === "bindings/README.md";
    const peers = isRow && /^ *Leasehold/.test(head[1]) ? 1 : 0;
    for (const [at, cell] of isParity ? [] : [...cells.entries()].slice(peers)) {
      const column = spokenOf(head?.[at]);
      for (const [, code] of cell.matchAll(/`([^`]+)`/g)) {
        yield [code.replace(/\s+/g, " "), column === BOTH ? section : column];
      }
    }
  }
}

/** Yields the names in a piece of code, except those of tests, each with the languages that it may be in. */
function* names(code, languages) {
  const text = code.replace(/\w[\w-]*:\/\/\S*|\b\w+(?:::\w+)*::tests::[\w:]+|\b[\w.-]+\.(md|mjs|js|jsonl?|html|wasm|conf|timer|fence|tla)\b/g, "");
  for (const [path] of text.matchAll(/\b\w+(?:::\w+)+/g)) {
    yield [path.replace(/^leasehold::/, "").replaceAll("::", "."), ["rust"]];
  }
  for (const [, receiver, member] of text.matchAll(/(?<![.\w/-])([A-Za-z]\w*)\.(?!await\b)([A-Za-z]\w*)/g)) {
    const type = TYPES[receiver];
    yield [`${type ?? receiver}.${member}`, type === undefined ? ["javascript"] : languages];
  }
  for (const [, chained, called] of text.matchAll(/[)?]\.(?!await\b)(\w+)|(?<![.\w:])(?=[a-z])(\w+)\(/g)) {
    yield [`.${chained ?? called}`, languages];
  }
  for (const [, type] of text.matchAll(/\bnew (\w+)/g)) {
    yield [type, ["javascript"]];
  }
  for (const [, options] of text.matchAll(/\{ ([^{}]*) \}/g)) {
    for (const option of options.split(", ")) yield [`.${option.split(":")[0]}`, ["javascript"]];
  }
}

/** Returns all names that were looked up on a page, and those that no known language or owner has. */
function lookUp(path, text) {
  const all = [...inline(path, text)].flatMap(([code, languages]) => [...names(code, languages)]);
  const unknown = all.filter(([name, languages]) => !languages.some((language) => has(language, name)));
  return { all: all.map(([name]) => name), unknown: unknown.map(([name]) => name) };
}

for (const path of PAGES) {
  test(`every call that ${path} names exists`, () => {
    const { unknown } = lookUp(path, page(path));
    assert.deepEqual(unknown.filter((name) => !OTHERS.has(name)), []);
  });
}

test("the names are found, and each exception is needed", () => {
  const found = PAGES.map((path) => lookUp(path, page(path)));
  const all = new Set(found.flatMap(({ all }) => all));
  for (const name of ["Locker.quorum", "Lock.acquire_within", "Locker.forceRelease", ".to_prometheus", ".timeout"]) {
    assert.ok(all.has(name), name);
  }
  const unknown = found.flatMap(({ unknown }) => unknown);
  assert.deepEqual([...OTHERS.keys()].filter((name) => !unknown.includes(name)), []);
});

// The negative controls: a call that does not exist is noticed, wherever it is.
const column = "| Redisson | Leasehold in Rust | in JavaScript |\n|---|---|---|\n";
for (const [text, name] of [
  ["Call `Locker::invented`.", "Locker.invented"],
  ["Call `Locker.invented`, or\n`lock.acquire`.", "Locker.invented"],
  ["Call `lease.invented()`.", "Lease.invented"],
  ['Call `locker.lock("a")?.invented()`.', ".invented"],
  ["Call `invented(1)`.", ".invented"],
  ["Call `fence::sql::invented`.", "fence.sql.invented"],
  ["Give `{ invented: true }`.", ".invented"],
  ["## In Rust\n\nCall `lock.tryAcquire()`.", "Lock.tryAcquire"],
  ["## In Node\n\nCall `lock.try_acquire()`.", "Lock.try_acquire"],
  [`${column}| \`rlock.lock()\` | \`lock.held\` | \`lock.held\` |`, "Lock.held"],
  [`${column}| \`rlock.lock()\` | \`lock.is_held()\` | \`lock.is_held()\` |`, "Lock.is_held"],
]) {
  test(`${name} is noticed in ${JSON.stringify(text)}`, () => {
    assert.deepEqual(lookUp("docs/page.md", text).unknown, [name]);
  });
}
