// Catches, in examples/browser: a pause that stops no engine, so that it shows nothing; a late write that a
// guard lets pass; a page that breaks its own rules for what it may load, or whose layout jumps.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { request } from "node:http";
import { after, before, describe } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { format, parse, random } from "../../../../examples/browser/schedule.mjs";
import { serve } from "../../../../examples/browser/serve.mjs";
import { test } from "../support/test.mjs";
import { startChromium } from "./chromium.mjs";

const PROGRAM = fileURLToPath(new URL("../../../../examples/browser/serve.mjs", import.meta.url));

describe("the paused writer", () => {
  let context;
  let server;

  before(async () => {
    server = await serve(0);
    context = await startChromium();
  });
  after(async () => {
    await context?.close();
    server?.closeAllConnections();
    server?.close();
  });

  /** Plays on a new page. Logged messages and requests to other hosts are failures. */
  async function play(act, { width = 1200, scheme = "light", hash = "" } = {}) {
    const page = await context.newPage();
    const wrong = [];
    const origin = `http://127.0.0.1:${server.address().port}`;
    page.on("console", (message) => wrong.push(message.text()));
    page.on("pageerror", (error) => wrong.push(String(error.stack ?? error)));
    page.on("request", (asked) => asked.url().startsWith(`${origin}/`) || wrong.push(asked.url()));
    await page.setViewportSize({ width, height: 800 });
    await page.emulateMedia({ colorScheme: scheme });
    await page.goto(origin + hash);
    await act(new Visitor(page));
    assert.deepEqual(wrong, []);
    await page.close();
  }

  test("without a guard a pause destroys what the next holder wrote", () =>
    play(async (visitor) => {
      await visitor.pauseInTheMiddle("A");
      await visitor.writes("B");
      await visitor.press("A", "Resume");
      await visitor.reads("#log", /Accepted token 1 from A: it destroyed what B wrote with token 2/);
      await visitor.reads("#document .destroyed", /B was here, with token 2/);
      await visitor.reads("#caption", /a guard can/);
      await visitor.reads(".client[data-name=A] .status", /lost its lease/);
    }));

  test("with a guard the late write is refused, and all that was written is there", () =>
    play(async (visitor) => {
      await visitor.page.getByRole("switch").check();
      await visitor.pauseInTheMiddle("A");
      await visitor.writes("B");
      await visitor.press("A", "Resume");
      await visitor.reads("#log", /Refused token 1 from A: the guard has seen 2/);
      await visitor.reads("#document", /B was here, with token 2/);
      assert.equal(await visitor.page.locator(".destroyed").count(), 0);
    }));

  test("a client that is cut off stops by itself, but its network may deliver a write late", () =>
    play(async (visitor) => {
      await visitor.holds("A");
      await visitor.press("A", "Cut off");
      // The read at the beginning of a write is delayed, and so is the rest.
      await visitor.press("A", "Write");
      await visitor.writes("B");
      await visitor.press("A", "Reconnect");
      await visitor.reads("#log", /A looked before it wrote: its lease with token 1 is over, so it sent nothing/);
      // Its earlier requests arrive late.
      await visitor.press("B", "Release");
      await visitor.holds("A");
      await visitor.press("A", "Write");
      await visitor.reads(".client[data-name=A] .status", /looked/);
      await visitor.press("A", "Cut off");
      await visitor.reads(".client[data-name=A] .status", /under way/);
      await visitor.writes("C");
      await visitor.page.getByRole("switch").check();
      await visitor.press("A", "Reconnect");
      await visitor.reads("#log", /Refused token 3 from A: the guard has seen 4/);
    }));

  test("it plays its story by itself, 400 pixels wide, and nothing moves", () =>
    play(
      async (visitor) => {
        const { page } = visitor;
        await page.getByRole("switch").check();
        const before = await visitor.places();
        await page.getByRole("button", { name: "Show me" }).click();
        for (const caption of [/right then A is paused/, /B asks for the lock/, /A will go on/, /Refused token 1/]) {
          await visitor.reads("#caption", caption);
          assert.deepEqual(await visitor.places(), before);
        }
        await visitor.press("C", "Cut off");
        assert.deepEqual(await visitor.places(), before);
        assert.equal(await page.evaluate("document.documentElement.scrollWidth"), 400);
      },
      { width: 400, scheme: "dark" },
    ));

  test("a schedule of faults is run by its link, and a guard refuses what it makes late", () =>
    play(async (visitor) => {
      const { page } = visitor;
      await page.locator("#from").fill("12");
      await page.getByRole("button", { name: "Add" }).click();
      await visitor.reads("#caption", /cannot be added: "A.pause.12-10" ends before it begins/);
      await page.locator("#from").fill("3.5");
      await page.locator("#until").fill("10.5");
      await page.getByRole("button", { name: "Add" }).click();
      await page.locator("#who").selectOption("server");
      await page.getByRole("button", { name: "Add" }).click();
      await visitor.reads("#schedule", /A is paused from 3.5 to 10.5 s.*The server loses all data at 3.5 s/);
      await page.getByRole("button", { name: "Remove: The server" }).click();
      await page.getByRole("switch").check();
      await page.getByRole("button", { name: "Run" }).click();
      await visitor.reads("#log", /Refused token \d+ from A: the guard has seen \d+/);
      await visitor.reads("#caption", /The schedule is over: \d+ writes accepted, [1-9]\d* refused as late, none destroyed/);
      const address = new URL(await page.getByRole("link", { name: "Link" }).evaluate((link) => link.href));
      assert.equal(address.hash, "#break=A.pause.3.5-10.5&guard=on");
      assert.equal(page.url(), address.href);
    }));

  test("without a guard a schedule destroys, and its crash and flush end nothing", () =>
    play(
      async (visitor) => {
        await visitor.reads("#caption", /The schedule is over: \d+ writes accepted, 0 refused as late, some destroyed/);
        await visitor.reads("#log", /from B/);
      },
      { hash: "#break=A.pause.3.5-14,C.crash.8,server.flush.16,B.slow.17-20,C.cut.17-20" },
    ));

  test("a link that is no schedule says why, and the page can be used", () =>
    play(
      async (visitor) => {
        await visitor.reads("#caption", /cannot be run: "<b>" is no fault/);
        await visitor.holds("A");
      },
      { hash: "#break=%3Cb%3E" },
    ));

  test("it can be used by keyboard alone", () =>
    play(async (visitor) => {
      const { page } = visitor;
      const focused = () => page.evaluate("document.activeElement.textContent || document.activeElement.id");
      await visitor.reads(".client[data-name=A] .status", /has no lease/);
      const seen = [];
      for (let at = 0; at < 19; at++) {
        await page.keyboard.press("Tab");
        seen.push(await focused());
        if (at === 1) {
          await page.keyboard.press("Enter");
          await visitor.reads(".client[data-name=A] .status", /holds token 1/);
          // It has nothing to do now, but the next Tab continues from here.
          assert.equal(await focused(), "Acquire");
        }
      }
      const buttons = ["Acquire", "Write", "Pause", "Cut off", "Release"];
      assert.deepEqual(seen.slice(0, 17), ["Show me", ...buttons, ...buttons, ...buttons, "guard"]);
    }));

  test("nothing but the page's files is served, and to nobody by another name", async () => {
    const { port } = server.address();
    const ask = (path, host = `127.0.0.1:${port}`) =>
      new Promise((resolve, reject) => {
        const options = { port, host: "127.0.0.1", path, headers: { host } };
        request(options, (response) => resolve(response.resume())).on("error", reject).end();
      });
    assert.equal(server.address().address, "127.0.0.1");
    const page = await ask("/");
    assert.equal(page.statusCode, 200);
    assert.match(page.headers["content-security-policy"], /default-src 'none'.*frame-ancestors 'none'/);
    assert.doesNotMatch(page.headers["content-security-policy"], /unsafe-inline|unsafe-eval' |data:|\*/);
    const outside = ["/serve.mjs", "/../README.md", "/leasehold/../../package.json", "/%2e%2e/README.md", "/leasehold/"];
    for (const path of outside) {
      assert.equal((await ask(path)).statusCode, 404, path);
    }
    assert.equal((await ask("/", "elsewhere.invalid")).statusCode, 403);
  });

  test("schedules are read as they are written, and mistakes are named", () => {
    for (let tries = 0; tries < 200; tries++) {
      const faults = random();
      assert.deepEqual(parse(format(faults)), faults);
    }
    const wrong = {
      "A.pause.3": /has no end/,
      "A.crash.3-4": /does not last/,
      "A.flush.3": /is a fault of server only/,
      "server.pause.3-4": /is a fault of A, B, C only/,
      "A.toString.3": /is no fault/,
      "A.sleep.3": /is none of the faults pause/,
      "A.pause.50-61": /ends after 60 seconds/,
      "A.pause.-1-4": /is no fault/,
      "A.pause.1e9-4": /is no fault/,
      "A.cut.1-9,A.cut.2-3": /A.cut.2-3 begins before A.cut.1-9 ends/,
      [Array(41).fill("A.crash.1").join(",")]: /at most 40 faults/,
      ["x".repeat(100_000)]: /^Error: "x{30}" is no fault/,
    };
    for (const [text, why] of Object.entries(wrong)) assert.throws(() => parse(text), why);
  });

  test("wrong arguments are named, and help is given", async () => {
    const run = (...args) => promisify(execFile)(process.execPath, [PROGRAM, ...args], { timeout: 30_000 });
    assert.match((await run("--help")).stdout, /--port/);
    for (const args of [["--nonsense"], ["--port", "abc"], ["--port", "70000"]]) {
      const failed = await run(...args).catch((error) => error);
      assert.equal(failed.code, 2, args.join(" "));
      assert.match(failed.stderr.split("\n")[0], /nonsense|--port is a number/);
    }
    const taken = await run("--port", String(server.address().port)).catch((error) => error);
    assert.equal(taken.code, 1);
    assert.match(taken.stderr, /^error: .*EADDRINUSE.*\n$/);
  });
});

/** A user who presses the buttons and reads the page. */
class Visitor {
  constructor(page) {
    this.page = page;
  }

  /** Waits until the client's button is enabled, and presses it. */
  press(client, label) {
    return this.page.locator(`.client[data-name=${client}]`).getByRole("button", { name: label }).click();
  }

  reads(selector, text) {
    return this.page.locator(selector).filter({ hasText: text }).first().waitFor();
  }

  async holds(client) {
    await this.press(client, "Acquire");
    await this.reads(`.client[data-name=${client}] .status`, /holds token/);
  }

  /** Acquires and writes, and waits until the write is accepted. */
  async writes(client) {
    await this.holds(client);
    await this.press(client, "Write");
    await this.reads("#log", new RegExp(`Accepted token \\d+ from ${client}\\.`));
  }

  /** Leaves a client paused between its check of the lease and its write; on a slow machine that may fail. */
  async pauseInTheMiddle(client) {
    const status = `.client[data-name=${client}] .status`;
    await this.holds(client);
    for (let tries = 5; tries > 0; tries--) {
      await this.press(client, "Write");
      await this.reads(status, /looked/);
      await this.press(client, "Pause");
      await this.reads(status, /paused/);
      // A report that was pending may still arrive.
      await this.page.waitForTimeout(300);
      if (/looked/.test(await this.page.locator(status).textContent())) return;
      await this.press(client, "Resume");
    }
    throw new Error("the pause always came too late");
  }

  /** Returns the positions of all elements. */
  places() {
    const boxes = () =>
      [...document.querySelectorAll("button, section, figure, #guard, footer")].map((element) => {
        const { x, y, width, height } = element.getBoundingClientRect();
        return [element.dataset.action ?? element.className, x, y + scrollY, width, height].join(" ");
      });
    return this.page.evaluate(boxes);
  }
}
