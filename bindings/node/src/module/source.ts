// The source of the engine's module. For other platforms the build replaces this file by another one of this
// folder.
export { compile, compileAsync } from "./inline.js";
