import { config } from "../common/check.js";

/**
 * Returns the name in a `memory:` URL; `undefined` for a URL of another scheme. As in Rust, the scheme may be
 * in any case, and blanks around the URL do not count.
 */
export function memoryName(text: string): string | undefined {
  const [, name] = /^memory:(?:\/\/)?([^]*)$/i.exec(text.trim()) ?? [];
  if (name === undefined) {
    return undefined;
  }
  if (name.includes("#")) {
    throw bad("the store's URL has a fragment (#…); percent-encode special characters");
  }
  if (/[?@]/.test(name)) {
    throw bad("a memory:// URL takes only a name");
  }
  try {
    // As in a server's URL, the first part is a host.
    if (!/\p{Cc}|^[^/]* /u.test(name)) {
      return decodeURIComponent(name);
    }
  } catch {
    // The error of `decodeURIComponent` says nothing more.
  }
  throw bad("the name in the store's URL is not valid; percent-encode spaces, control characters and %");
}

function bad(what: string): Error {
  return config(`${what}; a store's URL has the form memory://[name]`);
}
