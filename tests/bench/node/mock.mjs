/**
 * Makes a client for `Locker.from` that answers at once from memory, as the script of an idle server answers to
 * acquisitions and releases of free locks: only its time. It measures the library alone.
 */
export function mockClient() {
  let last = 0;
  const mock = {
    /** Script calls so far. */
    calls: 0,
    async evalsha() {
      mock.calls += 1;
      // Microseconds that grow each time: tokens are made of them.
      last = Math.max(last + 1, Date.now() * 1_000);
      return String(last);
    },
    eval: () => mock.evalsha(),
  };
  return mock;
}
