// Everything except the errors. In the package this is a file of its own, so that a bundler drops it, engines
// included, from a program that imports only errors from `leasehold`.
export { init } from "./api/init.js";
export { Locker } from "./api/locker.js";
export { MemoryStore } from "./api/memory.js";
