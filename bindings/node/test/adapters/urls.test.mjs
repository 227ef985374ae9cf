// The grammar of store URLs, by the table that Rust uses, too.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "../support/test.mjs";
import { bundle } from "./bundle.mjs";

const { memoryName, parseUrl } = await bundle();
const vectors = JSON.parse(readFileSync(new URL("../../../../tests/vectors/urls.json", import.meta.url)));

function read(url) {
  const name = memoryName(url);
  if (name !== undefined) {
    return { url, kind: "memory", name };
  }
  const { path, service, database, nodes, ...parts } = parseUrl(url);
  const at = nodes.map(({ host, port }) => [host, port]);
  return { ...parts, url, database, nodes: at, name: path ?? service };
}

/** Fills in what a vector leaves out, and drops what a URL does not have. */
const whole = (valid) => (valid.kind === "memory" ? valid : { tls: false, database: 0, nodes: [], ...valid });
const parts = (read) => Object.fromEntries(Object.entries(read).filter(([, value]) => value !== undefined));

test("the parts of a URL are taken as in Rust", () => {
  // Catches a part that is lost, or taken for another one, in one language.
  for (const valid of vectors.valid) {
    assert.deepEqual(parts(read(valid.url)), whole(valid), valid.url);
  }
});

test("errors about a URL are the same as in Rust, and leak nothing", () => {
  for (const { url, says } of vectors.invalid) {
    assert.throws(() => read(url), (error) => {
      assert.equal(error.code, "config", `${url}: ${error.stack}`);
      assert.equal(error.message.split("; a store's URL has the form ")[0], says, url);
      assert.doesNotMatch(`${error.stack} ${error.cause}`, /s3cret/);
      return true;
    }, url);
  }
});
