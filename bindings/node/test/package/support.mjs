// The packed package, installed where nothing of the repository is near, and programs run on it.
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
/** The programs of one of the folders with npm packages. */
const PROGRAMS = [new URL("node_modules/.bin", import.meta.url), new URL("../../node_modules/.bin", import.meta.url)];
/** Far more than any of them takes; one that does not end has failed. */
const LIMIT = 120_000;

/** Runs a program to its end and returns what it printed; the error of one that fails shows all of that. */
export async function run(program, args, folder) {
  const path = [...PROGRAMS.map(fileURLToPath), process.env.PATH].join(delimiter);
  const quiet = { NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1", DO_NOT_TRACK: "1", DENO_DIR: join(folder, ".deno") };
  // Node's test runner tells its children by this that they are test files.
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

/** A folder of its own with the files; removed when the tests of this file are over. */
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

/** Packs the package as for publishing: the tarball, and npm's account of what is in it. */
export async function pack(folder) {
  const printed = await run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder, SOURCE], folder);
  const [account] = JSON.parse(printed);
  return { tarball: join(folder, account.filename), account };
}

/** A folder in which the packed package is installed, and nothing else. */
export async function installed() {
  const folder = await folderOf({ "package.json": '{ "name": "consumer", "private": true }\n' });
  const { tarball, account } = await pack(folder);
  // Offline: it has no dependency, so nothing is to be fetched.
  await run("npm", ["install", "--no-save", "--offline", "--no-audit", "--no-fund", tarball], folder);
  return { folder, tarball, account };
}
