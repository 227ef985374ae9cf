// The public items of the Rust crate `leasehold`, read from its source. rustfmt's indentation shows the
// structure: a module's items begin in the first column, a type's after 4 spaces, the fields of a variant
// after 8.
import { existsSync, readFileSync } from "node:fs";

const ROOT = new URL("../../../../core/src/", import.meta.url);

/** The crate for hosts, not for programs. Items that `leasehold` re-exports from it count. */
const ENGINE = "../engine/src/lib.rs";

/** Returns the source of a file, by its path in the crate's folder. */
export const rustSource = (path) => readFileSync(new URL(path, ROOT), "utf8");

/** Returns names such as `Locker::connect`, `LeaseEvent::Lost.reason`, `fence::sql::begin`. */
export function rustItems(source = rustSource) {
  const items = new Set();
  walk({ source, path: "lib.rs", prefix: "", isPublic: () => true, types: () => false, items });
  return items;
}

/**
 * Adds the items of a module. `isPublic` tells if an item of this name is public. `types` tells if an outer
 * module has a type of this name, which may have methods here.
 */
function walk({ source, path, prefix, isPublic, types, items }) {
  const text = expanded(source(path));
  // Items that a module adds to a type of the crate's root belong to that type.
  const ofRoot = (item) => new RegExp(`^use crate::(\\w+::)?(\\{[^}]*\\b)?${item.split("::")[0]}\\b`, "m").test(text);
  const has = itemsOf(text, isPublic, (type) => types(type) || ofRoot(type));
  has.items.forEach((item) => items.add(ofRoot(item) ? item : prefix + item));
  for (const [, open, name] of text.matchAll(/^(pub )?mod (\w+);/gm)) {
    const visible = open !== undefined && path !== ENGINE;
    const taken = takenFrom(text, name);
    walk({
      source,
      path: fileOf(path, name),
      prefix: visible ? `${prefix}${name}::` : prefix,
      isPublic: visible ? () => true : (item) => taken.has(item) && isPublic(item),
      types: (type) => has.types.has(type) || types(type),
      items,
    });
  }
  const taken = takenFrom(text, "leasehold_engine");
  if (taken.size > 0) {
    const isTaken = (item) => taken.has(item);
    walk({ source, path: ENGINE, prefix, isPublic: isTaken, types: isTaken, items });
  }
}

const MACRO = /^macro_rules! (\w+) \{\n {4}\(\$(\w+):ident[^)]*\) => \{\n([^]*?)^ {4}\};\n\}/gm;

/** Returns the text with what its macros make. The first argument of such a macro is the name of a type. */
function expanded(text) {
  const made = [...text.matchAll(MACRO)].flatMap(([, macro, argument, body]) => {
    const calls = [...text.matchAll(new RegExp(`^${macro}!\\((\\w+)`, "gm"))];
    return calls.map(([, type]) => body.replace(/^ {8}/gm, "").replaceAll(`$${argument}`, type));
  });
  return [text, ...made].join("\n");
}

/** Returns the names that a module re-exports from another one. */
function takenFrom(text, module) {
  const uses = [...text.matchAll(/^pub use (\w+)::(\{[^}]*\}|\w+);/gm)].filter(([, from]) => from === module);
  return new Set(uses.flatMap(([, , names]) => names.match(/\w+/g)));
}

function fileOf(path, name) {
  const folder = path.replace(/(?:(?<=^|\/)(?:lib|mod)|(?<!\/|^)\b)\.rs$/, "");
  const inside = folder === "" || folder.endsWith("/") ? folder : `${folder}/`;
  return [`${inside}${name}.rs`, `${inside}${name}/mod.rs`].find((file) => existsSync(new URL(file, ROOT)));
}

const ITEM = /^pub (?:async )?(struct|enum|trait|fn|type|const) (\w+)/;
const IMPL = /^impl(?:<.+?(?<!-)>)? (\w+)(?:<.*>)?(?: \{)?$/;
const OF_TYPE = /^ {4}pub (?:(?:const )?(?:async )?fn |const )?(\w+)(?=[(<:])/;
const VARIANT = /^ {4}([A-Z]\w*)(?=[,({ ])/;
const OF_VARIANT = /^ {8}(\w+):/;
const HIDDEN = /^ {4}#\[doc\(hidden\)\]/;

/** Returns the public items of one file, and which of them are types. */
function itemsOf(text, isPublic, types) {
  const items = [];
  const own = new Set();
  let kind;
  let type;
  let variant;
  let isHidden = false;
  for (const line of text.split("\n")) {
    const item = ITEM.exec(line);
    const impl = IMPL.exec(line);
    if (item !== null) {
      [, kind, type] = isPublic(item[2]) ? item : [];
      if (type !== undefined) {
        items.push(type);
        own.add(type);
      }
    } else if (impl !== null) {
      kind = "impl";
      type = isPublic(impl[1]) || types(impl[1]) ? impl[1] : undefined;
    } else if (line.startsWith("}")) {
      type = undefined;
    } else if (type !== undefined) {
      const named = kind === "enum" ? VARIANT.exec(line) : OF_TYPE.exec(line);
      isHidden ||= HIDDEN.test(line);
      if (named !== null) {
        if (!isHidden) items.push(`${type}::${named[1]}`);
        isHidden = false;
        variant = named[1];
      } else if (kind === "enum" && OF_VARIANT.test(line)) {
        items.push(`${type}::${variant}.${OF_VARIANT.exec(line)[1]}`);
      }
    }
  }
  return { items, types: own };
}
