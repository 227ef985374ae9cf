// The rooms of src/: which room may import which, and that there are no circular imports. Imports of types
// count, too: to understand a file, a reader must read the files of its types.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import { describe } from "node:test";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { test } from "./support/test.mjs";

const SRC = fileURLToPath(new URL("../src/", import.meta.url));

/** The rooms, each with the rooms that it may import. */
const ROOMS = {
  // The package's exports: the entries, and everything of the main entry except the errors.
  "": ["api", "adapters", "common"],
  // The classes and types that a program uses.
  api: ["thread", "host", "store", "adapters", "module", "common"],
  // A host whose engine is in a worker thread, and the program of that thread.
  thread: ["host", "store", "module", "common"],
  // The only room that runs the engine.
  host: ["store", "module", "common"],
  // The destinations of the engine's batches: a Redis server through an adapter, or a store in this process.
  store: ["adapters", "module", "common"],
  // The differences between Redis clients.
  adapters: ["common"],
  // The guards, which need no engine.
  fence: ["adapters", "common"],
  // Loads and calls the WebAssembly.
  module: ["generated", "common"],
  // Made by the build.
  generated: [],
  // Parts that any room may need: errors, types of events, checks of arguments, timers.
  common: [],
};

const room = (file) => (file.includes("/") ? file.slice(0, file.indexOf("/")) : "");

/**
 * Returns the imports of a file of src/, by their names in src/: of code only, but including types and
 * `import()`.
 */
function importsOf(file, text) {
  return ts
    .preProcessFile(text, true, true)
    .importedFiles.map(({ fileName }) => fileName)
    .filter((name) => name.startsWith(".") && name.endsWith(".js"))
    .map((name) => posix.join(posix.dirname(file), name.replace(/\.js$/, ".ts")));
}

/** Reads every file of src/ with its imports. */
function read() {
  const files = readdirSync(SRC, { recursive: true }).map((file) => file.replaceAll("\\", "/"));
  const graph = new Map();
  for (const file of files.filter((name) => name.endsWith(".ts") && room(name) !== "generated")) {
    graph.set(file, importsOf(file, readFileSync(SRC + file, "utf8")));
  }
  return graph;
}

/** Returns the first circle of imports, such as `["a.ts", "b.ts", "a.ts"]`. */
function circle(graph) {
  const done = new Set();
  const visit = (file, path) => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return undefined;
    for (const next of graph.get(file) ?? []) {
      const found = visit(next, [...path, file]);
      if (found !== undefined) return found;
    }
    done.add(file);
    return undefined;
  };
  for (const file of graph.keys()) {
    const found = visit(file, []);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Returns the imports that the rooms do not allow. */
function trespasses(graph) {
  return [...graph].flatMap(([file, imports]) =>
    imports
      .filter((other) => room(other) !== room(file) && !ROOMS[room(file)]?.includes(room(other)))
      .map((other) => `${file} imports ${other}`),
  );
}

describe("src/", () => {
  const graph = read();

  test("imports existing files, and every file is in a room", () => {
    // The control of the two tests below: both would miss an import that is misread.
    for (const [file, imports] of graph) {
      assert.ok(room(file) in ROOMS, `${file}: is this room missing in ROOMS?`);
      for (const other of imports) {
        assert.ok(graph.has(other) || existsSync(SRC + other.replace(/\.ts$/, ".d.ts")), `${file} imports ${other}`);
      }
    }
    assert.deepEqual([...graph.keys()].filter((file) => room(file) === "").sort(), ["errors.ts", "index.ts", "main.ts"]);
    assert.ok(graph.get("api/locker.ts").includes("host/host.ts"));
  });

  test("has no circle of imports", () => {
    assert.equal(circle(graph)?.join(" → "), undefined);
  });

  test("imports only in the order of its rooms", () => {
    assert.deepEqual(trespasses(graph), []);
  });

  test("would fail on a circle, and on an import against the order", () => {
    // The control, with one import of each kind.
    const wrong = [
      { file: "adapters/shared.ts", text: 'import { Host } from "../host/host.js";', turns: false },
      { file: "store/store.ts", text: 'import type { Host } from "../host/host.js";', turns: true },
      { file: "host/reader.ts", text: 'export { LeaseEvents } from "../api/events.js";', turns: true },
      { file: "common/printable.ts", text: 'const fence = import("../fence/index.js");', turns: true },
      { file: "common/errors.ts", text: 'let event: import("./types.js").LeaseEvent;', turns: true },
    ];
    for (const { file, text, turns } of wrong) {
      const [other] = importsOf(file, text);
      const changed = new Map(graph).set(file, [...graph.get(file), other]);
      assert.deepEqual(trespasses(changed), room(file) === room(other) ? [] : [`${file} imports ${other}`]);
      assert.equal(circle(changed)?.includes(file) ?? false, turns, file);
    }
  });
});
