import { config } from "../common/check.js";

/**
 * The name in a `memory:` URL; nothing for a URL of another scheme. Read as Rust reads it: without
 * regard to the case of the scheme, and blanks around it are no part of the name.
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
  // An empty query is one, too, and cannot be seen in `url.search`.
  if (url.username !== "" || url.password !== "" || text.includes("?")) {
    throw bad("a memory:// URL takes nothing but a name");
  }
  return url.hostname + url.pathname;
}

function bad(what: string): Error {
  return config(`${what}; it is of the form memory://[name]`);
}
