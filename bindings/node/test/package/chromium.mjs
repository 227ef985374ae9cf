// Debian's Chromium, headless.
import { chromium } from "playwright-core";
import { folderOf } from "./support.mjs";

/** Far more than anything in a page takes. */
const LIMIT = 100_000;
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Starts Chromium with a new profile. Resolves to a function that opens pages. */
export async function startChromium() {
  const options = { executablePath: CHROMIUM, args: FLAGS, timeout: LIMIT };
  const context = await chromium.launchPersistentContext(await folderOf(), options);
  context.setDefaultTimeout(LIMIT);
  return context;
}
