// Texts with placeholders in them, such as `<token first>`.
import assert from "node:assert/strict";

const ITEM = /<([^>]*)>/;

/** The values that placeholders may refer to. */
export class Kept {
  /** The tokens of all leases so far, by the lease's name in the scenario. */
  #tokens = new Map();
  #texts = new Map();

  add(lease, token) {
    this.#tokens.set(lease, token);
  }

  token(lease) {
    assert.ok(this.#tokens.has(lease), `there was no lease ${lease}`);
    return this.#tokens.get(lease);
  }

  /** Returns the text with every placeholder replaced. */
  fill(pattern) {
    return pattern.replace(new RegExp(ITEM, "g"), (_, item) => this.#value(item));
  }

  /** Checks that the text matches the pattern, and keeps the values that the pattern names. */
  match(text, pattern) {
    const names = [];
    // Literals and placeholders alternate.
    const parts = pattern.split(ITEM).map((part, at) => {
      if (at % 2 === 0) {
        return quoted(part);
      }
      const [, kind, length, name] = /^(hex|digits) (\d+)(?: as (.+))?$/.exec(part) ?? [];
      names.push(name);
      if (kind !== undefined) {
        return `([0-9${kind === "hex" ? "a-f" : ""}]{${length}})`;
      }
      return `(${part === "digits" ? "\\d+" : part === "text" ? ".*" : quoted(this.#value(part))})`;
    });
    const found = new RegExp(`^${parts.join("")}$`, "su").exec(text);
    assert.ok(found, `${JSON.stringify(text)} is not ${JSON.stringify(pattern)}`);
    names.forEach((name, at) => name && this.#texts.set(name, found[at + 1]));
  }

  #value(item) {
    if (item.startsWith("token ")) {
      return String(this.token(item.slice("token ".length)));
    }
    assert.ok(this.#texts.has(item), `there is no <${item}>`);
    return this.#texts.get(item);
  }
}

const quoted = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
