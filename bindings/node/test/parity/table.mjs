// The parity tables of Rust and JavaScript in bindings/README.md.
import { readFileSync } from "node:fs";

export const README = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");

/** Returns the rows: the items on both sides, and the note. */
export function rows(text = README) {
  const [, section] = text.split("\n## The same in Rust and in JavaScript\n");
  const lines = section.split("\n## ")[0].split("\n").filter((line) => /^\| *(`|\|)/.test(line));
  return lines.map((line) => {
    const [, rust, javascript, note] = line.split("|").map((cell) => cell.trim());
    return { line, rust: items(rust), javascript: items(javascript), note };
  });
}

/** Returns the errors in the table, in words; an empty list if there are none. */
export function problems(rustItems, javascriptItems, table) {
  const found = [];
  for (const [side, items] of [["rust", rustItems], ["javascript", javascriptItems]]) {
    const listed = table.flatMap((row) => row[side]);
    for (const item of items) {
      if (!listed.includes(item)) found.push(`${side}: ${item} is not in the table`);
    }
    for (const item of listed) {
      if (!items.has(item)) found.push(`${side}: there is no ${item}`);
    }
    for (const item of new Set(listed.filter((item, at) => listed.indexOf(item) < at))) {
      found.push(`${side}: ${item} is there twice`);
    }
  }
  for (const { line, rust, javascript, note } of table) {
    if ((rust.length === 0 || javascript.length === 0) && note === "") {
      found.push(`it does not say why there is no counterpart: ${line}`);
    }
  }
  return found;
}

/** Returns the items in backticks. `a{,.b}` stands for `a` and `a.b`. */
function items(cell) {
  return [...cell.matchAll(/`([^`{]+)(?:\{([^}]*)\})?`/g)].flatMap(([, head, ends]) =>
    ends === undefined ? [head] : ends.split(",").map((end) => head + end),
  );
}
