import { config } from "../common/check.js";

/**
 * The name in a `memory:` URL; `undefined` for a URL of another scheme. As in Rust, the scheme may be in
 * any case, and blanks around the URL do not count.
 */
export function memoryName(text: string): string | undefined {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    if (/^\s*memory:/i.test(text)) {
      throw bad("the store's URL cannot be read");
    }
    return undefined;
  }
  if (url.protocol !== "memory:") {
    return undefined;
  }
  if (text.includes("#")) {
    throw bad("the store's URL has a fragment (#…); percent-encode special characters");
  }
  // An empty query is refused, too, and `url.search` does not show it.
  if (url.username !== "" || url.password !== "" || text.includes("?")) {
    throw bad("a memory:// URL takes nothing but a name");
  }
  return url.hostname + url.pathname;
}

function bad(what: string): Error {
  return config(`${what}; it is of the form memory://[name]`);
}
