// What `Locker.connect` needs beside a client. In the package it is a file of its own, which the others share.
export { look, lookIfSlow } from "./look.js";
export { readTls } from "./tls.js";
export { parseUrl } from "./url.js";
