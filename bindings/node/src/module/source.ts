// Where the module comes from. The build puts another file of this folder in the place of this one
// for what it bundles for other platforms.
export { compile, compileAsync } from "./inline.js";
