// Plays the story of the paused writer, by the same buttons that a visitor has.

/** Milliseconds for which a caption can be read before the next step. */
const READ = 1_800;
const LIMIT = 20_000;

/**
 * Plays the story with the first two peers. `tell` shows a caption; `signal` is aborted when the visitor takes over.
 * Resolves to true if the story came to its end.
 */
export async function play([a, b, ...others], tell, signal) {
  const over = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  over.catch(() => {});
  const sleep = (ms) => Promise.race([over, new Promise((resolve) => setTimeout(resolve, ms))]);
  const until = async (condition) => {
    for (const end = performance.now() + LIMIT; !condition(); await sleep(20)) {
      if (performance.now() > end) throw new Error("it takes too long");
    }
  };
  const act = async (caption, peer, action, done) => {
    tell(caption);
    peer.do(action);
    await until(done);
    await sleep(READ);
  };
  const writes = (peer, caption) => act(caption, peer, "write", () => peer.write === undefined);
  try {
    await rest([a, b, ...others], until);
    await act("A acquires the lock, and gets a token.", a, "acquire", () => a.tenure === "held");
    await writes(a, "A writes: it reads the document, looks at its lease, and sends the write with its token.");
    tell("A writes again: it looks at its lease, which is valid …");
    a.do("write");
    await until(() => a.write?.from !== undefined);
    await sleep(400);
    tell("… and right then A is paused, as by its host or a garbage collection. Nothing renews its lease.");
    a.do("pause");
    await sleep(READ);
    await act("B asks for the lock, and gets it when A's lease has ended.", b, "acquire", () => b.tenure === "held");
    await writes(b, "B holds the lock with a greater token, and writes. All is well so far.");
    tell("A will go on now. It has looked at its lease already, so it sends its write.");
    await sleep(READ);
    a.do("pause");
    await until(() => a.write === undefined);
    return true;
  } catch {
    return false;
  }
}

/** Ends all activity. */
async function rest(peers, until) {
  for (const peer of peers) {
    if (peer.cutOff) peer.do("cut");
    if (peer.paused) peer.do("pause");
  }
  await until(() => peers.every(({ write }) => write === undefined));
  // Not at once: a lease that was just granted to a waiter must be released too.
  await until(() => {
    for (const peer of peers) peer.do("release");
    return peers.every(({ tenure }) => tenure === "none");
  });
}
