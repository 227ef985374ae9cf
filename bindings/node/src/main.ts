// What is in a file of its own beside the errors: a bundler then leaves all of it out, engines too, of a program
// that takes only the errors from `leasehold`.
export { init } from "./api/init.js";
export { Locker } from "./api/locker.js";
export { MemoryStore } from "./api/memory.js";
