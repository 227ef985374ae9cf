/**
 * Makes a client for `Locker.from` that answers from memory at once what the script on a server that
 * has nothing else to do answers to acquisitions and releases of locks that nobody else wants: its time
 * alone. What is measured with it is the library alone.
 */
export function mockClient() {
  let last = 0;
  const mock = {
    /** Script calls so far. */
    calls: 0,
    async evalsha() {
      mock.calls += 1;
      // Microseconds, and greater each time: tokens are made of it.
      last = Math.max(last + 1, Date.now() * 1_000);
      return String(last);
    },
    eval: () => mock.evalsha(),
  };
  return mock;
}
