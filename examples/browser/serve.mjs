// Serves the page and the npm package that `cargo xtask package` made, on loopback only.
import { createReadStream, existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const HELP = `Serves the paused writer, to play with in a browser, on loopback only.

  node examples/browser/serve.mjs              at http://127.0.0.1:8042
  node examples/browser/serve.mjs --port 9000  at another port; 0 takes any that is free

Before the first run: cargo xtask package. Ctrl-C ends it.`;

/** The folder of the repository for each folder of the site. */
const FOLDERS = {
  "/": new URL("./", import.meta.url),
  "/leasehold/": new URL("../../bindings/node/dist/", import.meta.url),
};
const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
  ".mjs": "text/javascript; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
};
const HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; " +
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  // With these two the page may share memory with its workers, by which it pauses them.
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
  "cross-origin-resource-policy": "same-origin",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "cache-control": "no-store",
};

/** Serves the page on a port of the loopback; resolves to the server. */
export async function serve(port) {
  const files = await filesOfSite();
  const server = createServer((request, response) => answer(files, request, response));
  await new Promise((resolve, reject) => server.once("error", reject).listen(port, "127.0.0.1", resolve));
  return server;
}

/** Every path of the site and its file. Other paths are not served. */
async function filesOfSite() {
  const files = new Map();
  for (const [path, folder] of Object.entries(FOLDERS)) {
    for (const name of await readdir(folder)) {
      if (extname(name) in TYPES && name !== "serve.mjs") files.set(path + name, new URL(name, folder));
    }
  }
  files.set("/", files.get("/index.html"));
  return files;
}

function answer(files, request, response) {
  // Refuse host names that another site made resolve to this machine.
  const isOurs = /^(?:127\.0\.0\.1|localhost)(?::\d+)?$/.test(request.headers.host ?? "");
  const file = files.get(request.url.split("?")[0]);
  if (request.method !== "GET" || !isOurs || file === undefined) {
    response.writeHead(isOurs ? 404 : 403, HEADERS).end();
    return;
  }
  response.writeHead(200, { ...HEADERS, "content-type": TYPES[extname(file.pathname)] });
  createReadStream(file).on("error", () => response.destroy()).pipe(response);
}

function readPort() {
  try {
    const { values } = parseArgs({
      options: { port: { type: "string", default: "8042" }, help: { type: "boolean", short: "h" } },
    });
    if (values.help) {
      console.log(HELP);
      process.exit(0);
    }
    if (!/^\d{1,5}$/.test(values.port) || values.port > 65_535) throw new Error("--port is a number from 0 to 65535");
    return Number(values.port);
  } catch (error) {
    console.error(`${error.message}\n\n${HELP}`);
    process.exit(2);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const port = readPort();
  if (!existsSync(fileURLToPath(new URL("index.browser.js", FOLDERS["/leasehold/"])))) {
    console.error("error: the npm package is missing; make it with: cargo xtask package");
    process.exit(1);
  }
  try {
    const server = await serve(port);
    console.log(`The paused writer is at http://127.0.0.1:${server.address().port} (Ctrl-C ends it)`);
  } catch (error) {
    console.error(`error: ${error.message}`);
    process.exit(1);
  }
}
