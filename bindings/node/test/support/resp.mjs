import net from "node:net";

const CLOSED = "the tests' own connection closed";

/** The tests' own Redis client, so that no client under test is asked about itself. */
export class Resp {
  #socket;
  #waiting = [];
  #data = Buffer.alloc(0);

  static async connect(port, { password } = {}) {
    const resp = new Resp();
    await new Promise((resolve, reject) => {
      resp.#socket = net.connect(port, "127.0.0.1", resolve);
      resp.#socket.once("error", reject);
    });
    resp.#socket.unref();
    resp.#socket.on("error", () => {});
    resp.#socket.on("close", () => resp.#fail());
    resp.#socket.on("data", (data) => resp.#read(data));
    if (password) {
      await resp.command("AUTH", password);
    }
    return resp;
  }

  command(...args) {
    const parts = args.map((arg) => Buffer.from(String(arg)));
    const head = Buffer.from(`*${parts.length}\r\n`);
    const bulks = parts.flatMap((part) => [Buffer.from(`$${part.length}\r\n`), part, Buffer.from("\r\n")]);
    return new Promise((resolve, reject) => {
      if (this.#socket.destroyed) {
        throw new Error(CLOSED);
      }
      this.#waiting.push({ resolve, reject });
      this.#socket.ref();
      this.#socket.write(Buffer.concat([head, ...bulks]));
    });
  }

  close() {
    this.#socket.destroy();
  }

  #fail() {
    for (const { reject } of this.#waiting.splice(0)) {
      reject(new Error(CLOSED));
    }
  }

  #read(data) {
    this.#data = Buffer.concat([this.#data, data]);
    for (let reply = parse(this.#data, 0); reply; reply = parse(this.#data, 0)) {
      this.#data = this.#data.subarray(reply.end);
      const { resolve, reject } = this.#waiting.shift();
      if (reply.value instanceof Error) {
        reject(reply.value);
      } else {
        resolve(reply.value);
      }
    }
    if (this.#waiting.length === 0) {
      this.#socket.unref();
    }
  }
}

/** Parses one RESP2 reply from this position; `undefined` if it is incomplete. */
function parse(data, from) {
  const eol = data.indexOf("\r\n", from);
  if (eol < 0) {
    return undefined;
  }
  const line = data.toString("utf8", from + 1, eol);
  const end = eol + 2;
  switch (String.fromCharCode(data[from])) {
    case "+":
      return { value: line, end };
    case "-":
      return { value: new Error(line), end };
    case ":":
      return { value: Number(line), end };
    case "$": {
      const length = Number(line);
      if (length < 0) {
        return { value: null, end };
      }
      const done = end + length + 2;
      return data.length < done ? undefined : { value: data.toString("utf8", end, end + length), end: done };
    }
    default:
      return parseList(data, end, Number(line));
  }
}

function parseList(data, from, count) {
  const value = [];
  let end = from;
  for (let i = 0; i < count; i++) {
    const item = parse(data, end);
    if (!item) {
      return undefined;
    }
    value.push(item.value);
    end = item.end;
  }
  return { value, end };
}
