// The types of `leasehold/fence`.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "../support/test.mjs";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));

test("clients of others fit, and what is wrong does not", () => {
  const tsc = path("../../node_modules/typescript/bin/tsc");
  const args = [tsc, "--noEmit", "-p", path("types/tsconfig.json")];
  const { status, signal, stdout } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 100_000 });
  assert.equal(status, 0, `${signal} ${stdout}`);
});

// Catches types that make people install every client package.
test("the types that are shipped name no package of others", (t) => {
  const shipped = path("../../dist/fence.d.ts");
  if (!existsSync(shipped)) {
    t.skip("dist/ is missing");
    return;
  }
  const imports = [...readFileSync(shipped, "utf8").matchAll(/(?:from|import)\s*\(?["']([^"']+)["']/g)];
  assert.deepEqual(imports.map(([, name]) => name).filter((name) => !name.startsWith("./")), []);
});
