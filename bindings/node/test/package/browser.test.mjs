// Catches: APIs that only Node has; a module that a page cannot load without a bundler; synchronous
// compiling, which a browser's main thread refuses.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { after, before, describe } from "node:test";
import { build } from "esbuild";
import { test } from "../support/test.mjs";
import { startChromium } from "./chromium.mjs";
import { BUNDLED_PAGE, HELD, PAGE } from "./programs.mjs";
import { installed, put } from "./support.mjs";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm" };
const IMPORTS = { leasehold: "/dist/index.js", "leasehold/slim": "/dist/slim.js", "leasehold/fence": "/dist/fence.js" };
const HTML = `<!doctype html><meta charset="utf-8"><title>leasehold</title>
<script type="importmap">${JSON.stringify({ imports: IMPORTS })}</script>`;

describe("a page takes a lock", () => {
  let context;
  let page;
  let server;

  before(async () => {
    const { folder } = await installed();
    await put(folder, { "page.mjs": BUNDLED_PAGE });
    const root = join(folder, "node_modules/leasehold");
    await put(root, { "index.html": HTML });
    await build({
      absWorkingDir: folder,
      entryPoints: ["page.mjs"],
      outfile: join(root, "page.js"),
      bundle: true,
      minify: true,
      format: "iife",
      platform: "browser",
      logLevel: "error",
    });
    server = await serve(root);
    context = await startChromium();
    page = await context.newPage();
  });
  after(async () => {
    await context?.close();
    server?.closeAllConnections();
    server?.close();
  });

  /** Evaluates a script in a new page. An error logged there is a failure. */
  async function evaluate(script) {
    const errors = [];
    const failed = (error) => errors.push(String(error.stack ?? error));
    page.on("pageerror", failed);
    await page.goto(`http://127.0.0.1:${server.address().port}/index.html`);
    const result = await script();
    page.off("pageerror", failed);
    assert.deepEqual(errors, []);
    return result;
  }

  for (const entry of ["leasehold", "leasehold/slim"]) {
    test(`${entry}, without a bundler`, async () => {
      assert.match(await evaluate(() => page.evaluate(PAGE(entry))), HELD);
    });
  }

  test("leasehold, bundled and minified", async () => {
    const bundled = async () => {
      await page.addScriptTag({ url: "/page.js" });
      return page.evaluate("result");
    };
    assert.match(await evaluate(bundled), HELD);
  });
});

async function serve(root) {
  const server = createServer(async (request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://localhost").pathname));
    try {
      const body = await readFile(join(root, path));
      response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve, reject) => server.once("error", reject).listen(0, "127.0.0.1", resolve));
  return server;
}
