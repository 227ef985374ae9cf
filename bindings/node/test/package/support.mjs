// The packed package, installed far from the repository's files, and programs that run on it.
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { after } from "node:test";
import { promisify } from "node:util";

const execute = promisify(execFile);

/** The npm package in the repository. */
export const SOURCE = fileURLToPath(new URL("../..", import.meta.url));
/** The folders with the programs of npm packages. */
const PROGRAMS = [new URL("node_modules/.bin", import.meta.url), new URL("../../node_modules/.bin", import.meta.url)];
/** Far more than any of them takes. A program that does not end has failed. */
const LIMIT = 120_000;

/** Runs a program to its end and returns its output. The error of a failed program contains all of it. */
export async function run(program, args, folder) {
  const path = [...PROGRAMS.map(fileURLToPath), process.env.PATH].join(delimiter);
  const quiet = { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1", DO_NOT_TRACK: "1", DENO_DIR: join(folder, ".deno") };
  // This variable tells children of Node's test runner that they are test files.
  const { NODE_TEST_CONTEXT: _, NODE_OPTIONS: __, ...environment } = process.env;
  const options = { cwd: folder, timeout: LIMIT, env: { ...environment, ...quiet, PATH: path } };
  try {
    const { stdout } = await execute(program, args, options);
    return stdout;
  } catch (error) {
    const why = error.killed ? `it did not end within ${LIMIT} ms` : error.message;
    throw new Error(`${program} ${args.join(" ")}: ${why}\n${error.stdout ?? ""}`, { cause: error });
  }
}

const folders = [];
after(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

/** Makes a folder with these files. It is removed when the tests of this file are over. */
export async function folderOf(files = {}) {
  const folder = await mkdtemp(join(tmpdir(), "leasehold-package-"));
  folders.push(folder);
  await put(folder, files);
  return folder;
}

/** Writes files into a folder. */
export async function put(folder, files) {
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
}

/** Packs the package as for publishing. Returns the tarball, and npm's account of its content. */
export async function pack(folder) {
  const printed = await run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder, SOURCE], folder);
  const [account] = JSON.parse(printed);
  return { tarball: join(folder, account.filename), account };
}

/** Returns a folder in which only the packed package is installed. */
export async function installed() {
  const folder = await folderOf({ "package.json": '{ "name": "consumer", "private": true }\n' });
  const { tarball, account } = await pack(folder);
  // Offline, with the only dependency as it is installed here.
  const croner = join(SOURCE, "node_modules/croner");
  const packing = ["pack", "--json", "--ignore-scripts", "--pack-destination", folder, croner];
  const [{ filename }] = JSON.parse(await run("npm", packing, folder));
  const packages = [tarball, join(folder, filename)];
  await run("npm", ["install", "--no-save", "--offline", "--no-audit", "--no-fund", ...packages], folder);
  return { folder, tarball, account };
}
