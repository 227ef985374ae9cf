// The public items of the npm package `leasehold`, read from the types that it ships.
import { fileURLToPath } from "node:url";
import ts from "typescript";

const DIST = fileURLToPath(new URL("../../dist/", import.meta.url));

/** Parsed files of TypeScript itself, which are large and never change. */
const PARSED = new Map();

/** Returns names such as `Locker.connect`, `LeaseEvent.lost.reason`, `fence.Gate.check`. */
export function javascriptItems(change = (_file, text) => text) {
  const host = ts.createCompilerHost({});
  const { getSourceFile, readFile } = host;
  host.readFile = (file) => {
    const text = readFile(file);
    return file.startsWith(DIST) ? change(file.slice(DIST.length), text) : text;
  };
  host.getSourceFile = (file, ...how) => {
    if (file.startsWith(DIST)) {
      return getSourceFile(file, ...how);
    }
    if (!PARSED.has(file)) {
      PARSED.set(file, getSourceFile(file, ...how));
    }
    return PARSED.get(file);
  };
  const entries = [
    ["", `${DIST}index.d.ts`],
    ["fence.", `${DIST}fence.d.ts`],
  ];
  const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, strict: true, types: [] };
  const program = ts.createProgram(entries.map(([, file]) => file), options, host);
  const checker = program.getTypeChecker();
  const items = new Set();
  for (const [prefix, file] of entries) {
    const module = checker.getSymbolAtLocation(program.getSourceFile(file));
    for (const symbol of checker.getExportsOfModule(module)) {
      // An item that both entries have counts once.
      if (!items.has(symbol.name)) {
        itemsOf(checker, symbol, prefix).forEach((item) => items.add(prefix + item));
      }
    }
  }
  return items;
}

function itemsOf(checker, exported, prefix) {
  const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0;
  const symbol = isAlias ? checker.getAliasedSymbol(exported) : exported;
  const { name } = exported;
  const isClass = (symbol.flags & ts.SymbolFlags.Class) !== 0;
  const isInterface = (symbol.flags & ts.SymbolFlags.Interface) !== 0;
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  // Most interfaces of the guards describe other packages' objects.
  if (isClass || (isInterface && (prefix === "" || name.endsWith("Options")))) {
    const statics = isClass ? checker.getTypeOfSymbol(symbol).getProperties() : [];
    const members = [...statics, ...type.getProperties()].filter((member) => isOwn(member, symbol));
    return [name, ...members.map((member) => `${name}.${shown(member)}`)];
  }
  if (type.isUnion()) {
    return [name, ...type.types.flatMap((one) => variant(checker, one).map((item) => `${name}.${item}`))];
  }
  return [name];
}

/**
 * Returns the names of a variant: its text, the `type` and the other properties of an object, or the properties
 * of an object that has no `type` and no name.
 */
function variant(checker, type) {
  if (type.isStringLiteral()) {
    return [type.value];
  }
  const properties = type.getProperties();
  const tag = properties.find(({ name }) => name === "type");
  const value = tag && checker.getTypeOfSymbol(tag).value;
  if (typeof value !== "string") {
    return type.symbol?.name === "__type" ? properties.map(({ name }) => name) : [];
  }
  return [value, ...properties.filter((one) => one !== tag).map(({ name }) => `${value}.${name}`)];
}

/** True for a member that is neither inherited nor private. */
function isOwn(member, symbol) {
  const declared = (member.declarations ?? []).some(({ parent }) => symbol.declarations.includes(parent));
  return declared && !/^(prototype|constructor|.*#private)$/.test(member.name);
}

function shown({ name }) {
  const known = /^__@(\w+)@/.exec(name);
  return known === null ? name : `[Symbol.${known[1]}]`;
}
