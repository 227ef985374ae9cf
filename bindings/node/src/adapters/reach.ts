// The parts of `Locker.connect` besides a client. In the package this is a file of its own, which other files
// share.
export { look, lookIfSlow } from "./look.js";
export { readTls } from "./tls.js";
export { parseUrl } from "./url.js";
