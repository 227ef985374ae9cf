/**
 * Makes a client for `Locker.from` that answers from memory at once what the script on a server that
 * has nothing else to do would answer to acquisitions and releases of locks that nobody else wants.
 * What is measured with it is the library alone.
 */
export function mockClient() {
  let last = 0;
  const answer = (args) => {
    const nowMs = Date.now();
    // Microseconds, and greater each time: tokens come from it.
    last = Math.max(last + 1, nowMs * 1_000);
    const reply = [String(last)];
    for (let at = 0; at < args.length; ) {
      switch (args[at]) {
        case "acquire": {
          const ttl = Number(args[at + 3]);
          reply.push("3", "held", String((last += 1)), String(nowMs + ttl));
          at += 6;
          break;
        }
        case "release":
          reply.push("1", "released");
          at += 3;
          break;
        default:
          throw new Error(`the mock knows no ${args[at]}`);
      }
    }
    return reply;
  };
  const mock = {
    /** Script calls so far. */
    calls: 0,
    async evalsha(_sha, _keys, args) {
      mock.calls += 1;
      return answer(args);
    },
    async eval(_script, _keys, args) {
      return answer(args);
    },
  };
  return mock;
}
