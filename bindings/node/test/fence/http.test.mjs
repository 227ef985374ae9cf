// The HTTP guard, on real servers of each kind.
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import { after, before, describe } from "node:test";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { test } from "../support/test.mjs";
import { pause, waitFor } from "../support/wait.mjs";
import { fence } from "./bundle.mjs";
import { conforms, fails } from "./conformance.mjs";

const { fenceExpress, fenceFastify, fenceFetch, fenceHono, Gate, LeaseholdError, problemOf, refusal } = fence;
const { StaleTokenError, withToken, writtenPath } = fence;

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** The state of a service: registers with their history, and handlers that can be paused. */
class State {
  values = new Map();
  histories = new Map();
  handled = [];
  /** A promise that the handler of `/held/…` waits for. */
  hold = undefined;

  async handle(url, token) {
    const { pathname, searchParams } = new URL(url, "http://service");
    this.handled.push(pathname);
    const resource = named(url);
    if (pathname.startsWith("/held/")) {
      await this.hold;
    }
    const value = Number(searchParams.get("value"));
    this.values.set(resource, value);
    await turn();
    this.histories.set(resource, [...(this.histories.get(resource) ?? []), [Number(token), value]]);
    return "written";
  }
}

/** Returns the last part of the path. Safe methods write to nothing. */
const named = (url) => decodeURIComponent(new URL(url, "http://service").pathname.split("/").at(-1));
const write = (method, url) => (method === "GET" ? undefined : named(url));
/** Returns the status that `/status/404/…` asks for; 200 for other paths. */
const statusOf = (url) => Number(/^\/status\/(\d+)\//.exec(new URL(url, "http://service").pathname)?.[1] ?? 200);

/** Starts each kind of service. Resolves to its address and a function that ends it. */
const services = {
  express: async (state, options) => {
    const app = express();
    app.use(fenceExpress({ ...options, resource: (req) => write(req.method, req.url) }));
    app.use(async (req, res) => {
      const text = await state.handle(req.url, req.headers["fencing-token"]);
      res.status(statusOf(req.url)).send(text);
    });
    return listening(http.createServer(app));
  },
  "node:http": async (state, options) => {
    const check = fenceExpress({ ...options, resource: (req) => write(req.method, req.url) });
    const server = http.createServer((req, res) =>
      check(req, res, async () => {
        const text = await state.handle(req.url, req.headers["fencing-token"]);
        res.writeHead(statusOf(req.url)).end(text);
      }),
    );
    return listening(server);
  },
  fastify: async (state, options) => {
    const app = fastify({ forceCloseConnections: true });
    app.addHook("preHandler", fenceFastify({ ...options, resource: (req) => write(req.method, req.url) }));
    app.all("/*", async (req, reply) => {
      const text = await state.handle(req.url, req.headers["fencing-token"]);
      return reply.code(statusOf(req.url)).send(text);
    });
    const url = await app.listen({ port: 0, host: "127.0.0.1" });
    return { url, end: () => app.close() };
  },
  hono: async (state, options) => {
    const app = new Hono();
    app.use("*", fenceHono({ ...options, resource: (c) => write(c.req.method, c.req.url) }));
    app.all("*", async (c) => {
      const text = await state.handle(c.req.url, c.req.header("fencing-token"));
      return c.text(text, statusOf(c.req.url));
    });
    return { url: "http://service", fetch: async (url, init) => app.request(url, init), end() {} };
  },
  fetch: async (state, options) => {
    const resource = (request) => write(request.method, request.url);
    const handler = async (request) =>
      new Response(await state.handle(request.url, request.headers.get("fencing-token")), { status: statusOf(request.url) });
    const fenced = fenceFetch(handler, { ...options, resource });
    return { url: "http://service", fetch: async (url, init) => fenced(new Request(url, init)), end() {} };
  },
};

async function listening(server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  return {
    url,
    end: () => {
      server.closeAllConnections?.();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

for (const [name, start] of Object.entries(services)) {
  describe(name, () => {
    const state = new State();
    const gate = new Gate({ capacity: 1_000 });
    let service;
    let send;
    before(async () => {
      service = await start(state, { gate });
      send = (path, init) => (service.fetch ?? fetch)(`${service.url}${path}`, { method: "PUT", ...init });
    });
    after(() => service.end());

    test("the suite", async () => {
      const store = {
        texts: true,
        write: async (resource, token, value) => {
          const response = await send(`/r/${encodeURIComponent(resource)}?value=${value}`, withToken(token));
          if (!response.ok) {
            throw refusal(response.status, await response.text()) ?? new Error(`status ${response.status}`);
          }
          assert.equal(await response.text(), "written");
        },
        history: async (resource) => state.histories.get(resource) ?? [],
        read: async (resource) => state.values.get(resource),
      };
      await conforms(store, name, 10);
    });

    // Catches an answer that differs from Rust's: core/src/fence/http/problem.rs.
    test("refusals are problem documents", async () => {
      await send("/r/doc", withToken(34));
      const handled = state.handled.length;
      const stale = await send("/r/doc", withToken(33));
      await answers(stale, 409, {
        type: "urn:leasehold:stale-token",
        title: "Stale fencing token",
        status: 409,
        detail: 'the token 33 is stale: 34 was seen for the resource "doc"',
        resource: "doc",
        offered: 33,
        highest: 34,
      });
      await answers(await send("/r/doc"), 428, {
        type: "urn:leasehold:token-required",
        title: "No fencing token",
        status: 428,
        detail: "the request lacks the header Fencing-Token: set it to the token of your lease",
      });
      const malformed = (detail) => ({
        type: "urn:leasehold:bad-request",
        title: "Bad fencing token",
        status: 400,
        detail,
      });
      const most = Number.MAX_SAFE_INTEGER;
      for (const token of ["", "0", "01", "-1", "1.5", "abc", "0x1", "12345678901234567", "é"]) {
        const response = await send("/r/doc", { headers: { "fencing-token": token } });
        const detail = `Fencing-Token: a fencing token must be plain digits from 1 to ${most}`;
        await answers(response, 400, malformed(detail));
      }
      const large = await send("/r/doc", { headers: { "fencing-token": "9007199254740992" } });
      const detail = `Fencing-Token: a fencing token must be from 1 to ${most}; got 9007199254740992`;
      await answers(large, 400, malformed(detail));
      const headers = new Headers([["Fencing-Token", "34"], ["Fencing-Token", "35"]]);
      const several = await send("/r/doc", { headers });
      await answers(several, 400, malformed("the request has several Fencing-Token headers: send exactly one"));
      await answers(await send(`/r/${"x".repeat(513)}`, withToken(1)), 400, {
        type: "urn:leasehold:bad-request",
        title: "Bad resource",
        status: 400,
        detail: "a resource's name must be 1 to 512 bytes long; got 513 bytes",
      });
      assert.equal(state.handled.length, handled, "what was refused reached the handler");
      const safe = await send("/r/doc", { method: "GET" });
      assert.equal(safe.status, 200);
    });

    // Catches a resource that is released before its handler has written. Catches one client that fills the
    // gate, or locks others out, with made-up paths.
    test("a request that was not carried out leaves no token behind", async () => {
      const most = Number.MAX_SAFE_INTEGER;
      const remembered = gate.toJSON().seen.length;
      for (const status of [401, 403, 404, 405, 410]) {
        const made = `made-up-${status}`;
        assert.equal((await send(`/status/${status}/${made}`, withToken(most))).status, status);
        assert.equal(gate.highest(made), undefined, `${status}`);
        assert.equal((await send(`/r/${made}?value=1`, withToken(1))).status, 200);
        assert.equal(gate.highest(made), 1, "a write is remembered");
        // A resource that the gate remembers keeps its token.
        assert.equal((await send(`/status/${status}/${made}`, withToken(3))).status, status);
        assert.equal((await send(`/r/${made}?value=2`, withToken(2))).status, 409);
      }
      // A handler that gives such an answer may have written.
      for (const status of [400, 409, 500]) {
        await send(`/status/${status}/in-doubt-${status}`, withToken(34));
        assert.equal(gate.highest(`in-doubt-${status}`), 34);
      }
      assert.equal(gate.toJSON().seen.length, remembered + 8);
    });

    test("a newer request waits for an older one, and an older one that waits is refused", async () => {
      let go;
      state.hold = new Promise((resolve) => {
        go = resolve;
      });
      const first = send("/held/turns?value=1", withToken(5));
      await waitFor(() => state.handled.includes("/held/turns"));
      const order = [];
      const same = send("/r/turns?value=2", withToken(5)).then((response) => (order.push("same"), response));
      await pause(50);
      const newer = send("/r/turns?value=3", withToken(6)).then((response) => (order.push("newer"), response));
      assert.equal((await same).status, 409);
      await pause(50);
      assert.deepEqual(order, ["same"], "the newer did not wait");
      go();
      assert.deepEqual([(await first).status, (await newer).status], [200, 200]);
      assert.deepEqual(state.histories.get("turns"), [[5, 1], [6, 3]]);
    });
  });
}

async function answers(response, status, expected) {
  assert.equal(response.status, status);
  assert.match(response.headers.get("content-type"), /^application\/problem\+json/);
  const text = await response.text();
  assert.equal(text, JSON.stringify(expected), "to the letter");
  assert.equal(refusal(status, text).code, status === 409 ? "staleToken" : "config");
}

for (const name of ["express", "node:http", "fastify"]) {
  // Catches a resource that is released when the client disconnects, while the handler continues.
  test(`${name}: a client that disconnects does not free the resource`, async () => {
    const state = new State();
    const service = await services[name](state, {});
    const send = (path, token, signal) =>
      fetch(`${service.url}${path}`, withToken(token, { method: "PUT", ...(signal && { signal }) }));
    let go;
    state.hold = new Promise((resolve) => {
      go = resolve;
    });
    const impatient = new AbortController();
    const first = send("/held/gone?value=1", 5, impatient.signal);
    await waitFor(() => state.handled.length === 1);
    // A waiting request whose client disconnects is never handled.
    const waits = new AbortController();
    const second = send("/r/gone?value=2", 5, waits.signal);
    await pause(50);
    impatient.abort();
    waits.abort();
    await assert.rejects(Promise.all([first, second]), { name: "AbortError" });
    await second.catch(() => {});
    const third = send("/r/gone?value=3", 6);
    await pause(100);
    assert.equal(state.handled.length, 1, "the handler of the older one is still at work");
    go();
    assert.equal((await third).status, 200);
    assert.deepEqual(state.histories.get("gone"), [[5, 1], [6, 3]]);
    await service.end();
  });
}

// Catches a handler that never ends and locks out every newer holder.
test("a resource is not held forever for a handler whose client has gone", async (t) => {
  const gate = new Gate();
  const check = fenceExpress({ gate, resource: () => "a" });
  const res = fakeResponse();
  await new Promise((resolve) => check(fakeRequest(1), res, resolve));
  const next = gate.enter("a", 2);
  let free = false;
  next.then(() => (free = true));
  t.mock.timers.enable({ apis: ["setTimeout"] });
  res.emit("close");
  t.mock.timers.tick(29_999);
  await turn();
  assert.equal(free, false);
  t.mock.timers.tick(1);
  (await next).release();
  // A late answer frees no other request's write.
  const third = await gate.enter("a", 2);
  res.end();
  const fourth = gate.enter("a", 2);
  await turn();
  assert.equal(await Promise.race([fourth.then(() => "two are inside"), turn()]), undefined);
  third.release();
  (await fourth).release();
});

/** Services with a slow step before the fence, during which the client may disconnect. */
const slow = {
  express: (ahead, handle) => {
    const app = express();
    app.use((_req, _res, next) => ahead().then(next, next));
    app.use(fenceExpress({ resource: () => "a" }));
    app.use((req, res) => handle(req.headers["fencing-token"], () => res.end()));
    return listening(http.createServer(app));
  },
  "node:http": (ahead, handle) => {
    const check = fenceExpress({ resource: () => "a" });
    const handler = (req, res) => handle(req.headers["fencing-token"], () => res.end());
    return listening(
      http.createServer((req, res) => ahead().then(() => check(req, res, () => handler(req, res)))),
    );
  },
  "node:http2": (ahead, handle) => {
    const check = fenceExpress({ resource: () => "a" });
    const handler = (req, res) => handle(req.headers["fencing-token"], () => res.end());
    return listening(
      http2.createServer((req, res) => ahead().then(() => check(req, res, () => handler(req, res)))),
    );
  },
  fastify: async (ahead, handle) => {
    const app = fastify({ forceCloseConnections: true });
    app.addHook("preHandler", ahead);
    app.addHook("preHandler", fenceFastify({ resource: () => "a" }));
    app.all("/*", (req, reply) => handle(req.headers["fencing-token"], () => reply.send("")));
    const url = await app.listen({ port: 0, host: "127.0.0.1" });
    return { url, end: () => app.close() };
  },
};

for (const [name, start] of Object.entries(slow)) {
  // Catches a resource that is held forever: a finished response emits no more events.
  test(`${name}: a client that left before the fence holds nothing`, async () => {
    const handled = [];
    let arrived = false;
    let go;
    const left = new Promise((resolve) => {
      go = resolve;
    });
    const ahead = () => {
      const first = !arrived;
      arrived = true;
      return first ? left : Promise.resolve();
    };
    const handle = (token, answer) => {
      handled.push(token);
      // A handler whose client has gone may wait for it forever.
      if (token !== "1") {
        answer();
      }
    };
    const service = await start(ahead, handle);
    const send = name === "node:http2" ? overHttp2 : overHttp1;
    const first = send(service.url, 1);
    await waitFor(() => arrived);
    await first.leave();
    // The server must notice before the slow step ends.
    await pause(100);
    go();
    await pause(50);
    const second = send(service.url, 2);
    assert.equal(await second.status, 200);
    assert.deepEqual(handled, ["2"], "nobody would have heard the answer to the first");
    await second.leave();
    await service.end();
  });
}

function overHttp1(url, token) {
  const impatient = new AbortController();
  const request = withToken(token, { method: "PUT", signal: impatient.signal });
  const status = fetch(url, request).then((response) => response.status);
  status.catch(() => {});
  const leave = async () => {
    impatient.abort();
    await status.catch(() => {});
  };
  return { status, leave };
}

function overHttp2(url, token) {
  const session = http2.connect(url);
  session.on("error", () => {});
  const stream = session.request({ ":method": "PUT", ":path": "/a", "fencing-token": String(token) });
  stream.end();
  const status = once(stream, "response").then(([headers]) => headers[":status"]);
  status.catch(() => {});
  const leave = async () => {
    session.destroy();
    await once(session, "close");
  };
  return { status, leave };
}

/** A response that can be marked as finished. */
function fakeResponse() {
  return Object.assign(new EventEmitter(), { statusCode: 200, writableEnded: false, end() {} });
}

const fakeRequest = (token) => ({ method: "PUT", url: "/a", headers: { "fencing-token": String(token) } });

// Catches a resource that is held for a request that something else has answered, or that waits behind others
// on a dead connection.
test("a request that is over in any way holds nothing", async () => {
  const gate = new Gate();
  const check = fenceExpress({ gate, resource: () => "a" });
  const over = [
    [{ writableEnded: true }, {}],
    [{ destroyed: true }, {}],
    [{ closed: true }, {}],
    [{}, { socket: { destroyed: true } }],
  ];
  for (const [response, request] of over) {
    const passed = [];
    check({ ...fakeRequest(1), ...request }, Object.assign(fakeResponse(), response), () => passed.push(1));
    await turn();
    assert.deepEqual(passed, [], JSON.stringify([response, request]));
  }
  (await gate.enter("a", 2)).release();
  // A request that writes to nothing passes anyway.
  const open = fenceExpress({ resource: () => undefined });
  await new Promise((resolve) => open(fakeRequest(1), Object.assign(fakeResponse(), { closed: true }), resolve));
});

// Catches a client that disconnects between its turn and the handler.
test("a client that goes at the moment of its turn holds nothing", async () => {
  const gate = new Gate();
  const check = fenceExpress({ gate, resource: () => "a" });
  const held = await gate.enter("a", 1);
  const res = fakeResponse();
  const passed = [];
  check(fakeRequest(1), res, () => passed.push(1));
  await turn();
  held.release();
  res.emit("close");
  await turn();
  assert.deepEqual(passed, []);
  (await gate.enter("a", 2)).release();
});

// Catches a fetch handler that never ends, and one that runs for nobody.
for (const name of ["fetch", "hono"]) {
  test(`${name}: a resource is not held forever for a handler whose client has gone`, async (t) => {
    const gate = new Gate();
    const ran = [];
    const wait = async () => {
      ran.push(1);
      await new Promise(() => {});
    };
    const fenced =
      name === "fetch"
        ? fenceFetch(wait, { gate, resource: () => "a" })
        : (request) => fenceHono({ gate, resource: () => "a" })({ req: { raw: request } }, wait);
    const put = (signal) => new Request("http://service/a", withToken(1, { method: "PUT", signal }));
    const impatient = new AbortController();
    fenced(put(impatient.signal)).catch(() => {});
    await turn();
    const next = gate.enter("a", 1);
    let free = false;
    next.then(() => (free = true));
    t.mock.timers.enable({ apis: ["setTimeout"] });
    impatient.abort();
    t.mock.timers.tick(29_999);
    await turn();
    assert.equal(free, false);
    t.mock.timers.tick(1);
    (await next).release();
    await assert.rejects(fenced(put(AbortSignal.abort(new Error("gone")))), /gone/);
    assert.deepEqual(ran, [1], "it runs for nobody");
    (await gate.enter("a", 2)).release();
  });
}

test("requests without a token, and requests that are only checked", async () => {
  const state = new State();
  const optional = await services.fetch(state, { optional: true });
  const put = (url, token) => [url, token ? withToken(token, { method: "PUT" }) : { method: "PUT" }];
  assert.equal((await optional.fetch(...put("http://service/r/a"))).status, 200);
  const gate = new Gate();
  const checked = await services.fetch(state, { checkOnly: true, gate });
  const entered = await gate.enter("a", 7);
  assert.equal((await checked.fetch(...put("http://service/r/a", 7))).status, 200, "it waits for nothing");
  assert.equal((await checked.fetch(...put("http://service/r/a", 6))).status, 409);
  entered.release();
});

test("too many requests", async () => {
  const gate = new Gate({ capacity: 1 });
  const service = await services.fetch(new State(), { gate });
  const entered = await gate.enter("a", 1);
  const response = await service.fetch("http://service/r/b", withToken(2, { method: "PUT" }));
  assert.equal(response.status, 503);
  assert.equal(response.headers.get("retry-after"), "1");
  const body = await response.text();
  assert.equal(refusal(503, JSON.parse(body)).code, "overloaded");
  assert.equal(JSON.parse(body).title, "Too many writes");
  entered.release();
});

test("errors of the handler and of the resource are the framework's", async () => {
  const gate = new Gate();
  const failing = fenceFetch(() => Promise.reject(new Error("mine")), { gate });
  const request = () => new Request("http://service/a", withToken(1, { method: "PUT" }));
  await assert.rejects(failing(request()), /mine/);
  assert.equal((await fenceFetch(() => new Response("ok"), { gate })(request())).status, 200, "it is free again");
  const app = express();
  app.use(fenceExpress({ resource: () => { throw new Error("no idea"); } }));
  app.use((error, _req, res, _next) => res.status(500).send(error.message));
  const service = await listening(http.createServer(app));
  const response = await fetch(service.url, { method: "PUT" });
  assert.deepEqual([response.status, await response.text()], [500, "no idea"]);
  await service.end();
});

test("a full gate forgets nothing for paths that are not found", async () => {
  const gate = new Gate({ capacity: 2 });
  gate.check("a", 5);
  const handler = (request) => new Response("", { status: request.url.includes("made-up") ? 404 : 200 });
  const fenced = fenceFetch(handler, { gate });
  const put = (path, token) => fenced(new Request(`http://service${path}`, withToken(token, { method: "PUT" })));
  for (let path = 0; path < 10; path += 1) {
    assert.equal((await put(`/made-up/${path}`, Number.MAX_SAFE_INTEGER)).status, 404);
  }
  assert.deepEqual(gate.toJSON(), { capacity: 2, floor: null, seen: [["a", 5]] });
  assert.equal((await put("/b", 3)).status, 200);
});

test("a write that waited behind one that was not carried out is remembered", async () => {
  const gate = new Gate();
  const first = await gate.enter("a", 34);
  const second = gate.enter("a", 34);
  first.withdraw();
  (await second).release();
  assert.equal(gate.highest("a"), 34);
  const third = await gate.enter("b", 34);
  gate.check("b", 35);
  third.withdraw();
  assert.equal(gate.highest("b"), 35, "a check counts for good");
});

test("the path that is written to", () => {
  const cases = [
    ["PUT", "/account/%37?now", "/account/7"],
    ["put", "/é/%C3%A9#x", "/é/é"],
    ["POST", "http://host:80/a/b?c", "/a/b"],
    ["DELETE", "http://host", "/"],
    ["PATCH", "/%ff%zz%2", "/\ufffd%zz%2"],
    ["GET", "/a", undefined],
    ["head", "/a", undefined],
    ["OPTIONS", "*", undefined],
  ];
  for (const [method, url, path] of cases) {
    assert.equal(writtenPath(method, url), path, url);
  }
});

test("the header of a client", async () => {
  const init = withToken({ token: 34 }, { method: "PUT", headers: { "fencing-token": "1", accept: "*/*" } });
  assert.equal(init.method, "PUT");
  assert.deepEqual([...init.headers], [["accept", "*/*"], ["fencing-token", "34"]]);
  const request = new Request("http://service", { method: "POST", body: "b", headers: { a: "b" } });
  const copy = withToken("34", request);
  assert.deepEqual([copy.headers.get("fencing-token"), copy.headers.get("a")], ["34", "b"]);
  assert.equal(await copy.text(), "b");
  for (const lease of [0, undefined, null, {}, "abc", Number.NaN]) {
    assert.throws(() => withToken(lease), { code: "config" });
  }
});

test("answers of others are not refusals", () => {
  const stale = { type: "urn:leasehold:stale-token", status: 409 };
  for (const [status, body] of [
    [409, stale],
    [409, { ...stale, resource: "a", offered: 0, highest: 1 }],
    [409, { type: "about:blank" }],
    [400, stale],
    [412, { ...stale, resource: "a", offered: 1, highest: 2 }],
    [409, ""],
    [409, "no such user"],
    [409, null],
    [409, undefined],
    [200, "{}"],
  ]) {
    assert.equal(refusal(status, body), undefined);
  }
  const problem = problemOf(new StaleTokenError('a"b\n\u200b', 1, 2));
  assert.deepEqual(refusal(409, problem.body).resource, 'a"b\n\u200b');
  // As Rust shows it.
  assert.match(JSON.parse(problem.body).detail, /resource "a\\"b\\n\\u\{200b\}"$/);
  assert.equal(problemOf(new LeaseholdError("overloaded", "full")).headers["retry-after"], "1");
});

test("bad options", async () => {
  for (const make of [fenceExpress, fenceFastify, fenceHono, (options) => fenceFetch(() => {}, options)]) {
    await fails(async () => make({ gate: {} }), "config", /Gate/);
    await fails(async () => make({ resource: "account" }), "config", /resource/);
  }
  await fails(async () => fenceFetch("no function"), "config", /the handler must be a function/);
  await fails(async () => writtenPath(undefined, "/x"), "config", /the method must be a string/);
  await fails(async () => writtenPath("PUT", 5), "config", /the URL must be a string/);
  await fails(async () => problemOf(undefined), "config", /must be one of a guard/);
});
