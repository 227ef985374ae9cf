//! Processes that contend for one lock, and what they did.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use leasehold_tests::{Admin, Child, RedisServer, Resp, contenders};

/// How long a process may take to end its turn, or to start on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// How late two processes may be in printing when they got the lock.
const LATE: Duration = Duration::from_millis(2);

/// Contenders, half in Rust and half in JavaScript.
pub(crate) struct Crowd {
    children: Vec<Child>,
    guard: RedisServer,
    lines: Vec<Vec<String>>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Sum {
    pub(crate) turns: usize,
    /// The turns whose write the guard refused.
    pub(crate) in_vain: usize,
    pub(crate) refused: usize,
    pub(crate) late: usize,
    pub(crate) failed: usize,
    /// The tokens of leases that came after a greater token, each with that greater token. Only a primary
    /// that does not know yet that it was demoted can grant one of the two.
    pub(crate) overtaken: Vec<[u64; 2]>,
    /// When each lock was acquired, since 1970, in order.
    got: Vec<(Duration, u64)>,
}

impl Crowd {
    pub(crate) async fn start(url: &str, count: usize, ttl: Duration) -> Self {
        let guard = RedisServer::start().await;
        let args = [url, &guard.url(), "contended", &ttl.as_millis().to_string()];
        let rust = Path::new(env!("CARGO_BIN_EXE_contender"));
        let children = contenders(rust, &args, count, LIMIT).await;
        Self {
            lines: vec![Vec::new(); children.len()],
            children,
            guard,
        }
    }

    fn read(&mut self) {
        for (child, lines) in self.children.iter_mut().zip(&mut self.lines) {
            lines.extend(child.unread_lines());
        }
    }

    /// Lets them contend for this long.
    pub(crate) async fn run(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.read();
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Lets them contend until each has had the lock again. Returns how long the first and all took.
    pub(crate) async fn resumed(&mut self, limit: Duration) -> (Duration, Duration) {
        self.read();
        let before: Vec<usize> = self.lines.iter().map(Vec::len).collect();
        let begin = Instant::now();
        let mut first = None;
        loop {
            self.read();
            let has_got = |(lines, before): (&Vec<String>, &usize)| {
                lines[*before..].iter().any(|line| line.starts_with("got "))
            };
            let got = self.lines.iter().zip(&before).filter(|pair| has_got(*pair));
            let got = got.count();
            if got > 0 {
                first.get_or_insert_with(|| begin.elapsed());
            }
            if got == self.lines.len() {
                return (first.expect("at least one got the lock"), begin.elapsed());
            }
            assert!(
                begin.elapsed() < limit,
                "{got} of {} got the lock within {limit:?}: {:#?}",
                self.lines.len(),
                self.lines
                    .iter()
                    .map(|lines| lines.last())
                    .collect::<Vec<_>>()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends their turns, and checks the promises for all: no process starves, and the guard let no write pass
    /// after one with a later token.
    pub(crate) async fn end(mut self) -> Sum {
        self.children
            .iter_mut()
            .for_each(|child| child.write_line("over"));
        let end = Instant::now() + LIMIT;
        let is_done = |lines: &Vec<String>| lines.iter().any(|line| line.starts_with("done "));
        while !self.lines.iter().all(is_done) {
            assert!(
                Instant::now() < end,
                "a process still waits: {:#?}",
                self.lines
                    .iter()
                    .map(|lines| lines.last())
                    .collect::<Vec<_>>()
            );
            self.read();
            tokio::time::sleep(LOOK).await;
        }
        let count = |what: &str| {
            let lines = self.lines.iter().flatten();
            lines.filter(|line| line.starts_with(what)).count()
        };
        let mut got: Vec<_> = self
            .lines
            .iter()
            .flatten()
            .filter_map(|line| taken(line))
            .collect();
        got.sort_unstable();
        let is_overtaken = |pair: &&[(Duration, u64)]| {
            let apart = pair[1].0.saturating_sub(pair[0].0);
            pair[1].1 <= pair[0].1 && apart >= LATE
        };
        let overtaken = got.windows(2).filter(is_overtaken);
        let overtaken = overtaken.map(|pair| [pair[0].1, pair[1].1]).collect();
        let mut admin = Admin::connect(&self.guard).await;
        let Resp::Array(log) = admin.command(&["LRANGE", "log", "0", "-1"]).await else {
            panic!("LRANGE answers with an array");
        };
        let log: Vec<i64> = log.iter().filter_map(Resp::as_int).collect();
        assert!(log.is_sorted(), "a stale write passed the guard");
        assert_eq!(log.len(), count("wrote ") + count("late "));
        let in_vain = self.lines.iter().map(|lines| {
            let tokens = lines.iter().filter_map(|line| taken(line));
            let is_refused = |(_, token): &(_, u64)| !lines.contains(&format!("wrote {token}"));
            tokens.filter(is_refused).count()
        });
        Sum {
            turns: got.len(),
            in_vain: in_vain.sum(),
            refused: count("refused "),
            late: count("late "),
            failed: count("failed "),
            overtaken,
            got,
        }
    }
}

/// Returns when a lock was acquired, and its token.
fn taken(line: &str) -> Option<(Duration, u64)> {
    let (token, at) = line.strip_prefix("got ")?.split_once(' ')?;
    let at = Duration::from_micros(at.parse().expect("a time"));
    Some((at, token.parse().expect("a token")))
}

/// Returns the time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("the time is after 1970")
}

impl Sum {
    /// Returns true if one token of each overtaken pair was granted in this time: tokens are the time of
    /// their server.
    pub(crate) fn is_overtaken_only(&self, from: Duration, to: Duration) -> bool {
        let times = from.as_micros()..=to.as_micros();
        let mut pairs = self.overtaken.iter();
        pairs.all(|pair| pair.iter().any(|token| times.contains(&u128::from(*token))))
    }

    /// Returns the longest time from this moment on in which no process got the lock.
    pub(crate) fn longest_gap(&self, from: Duration, to: Duration) -> Duration {
        let times = self.got.iter().map(|(at, _)| *at);
        let times: Vec<_> = times.filter(|at| (from..=to).contains(at)).collect();
        let gaps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        gaps.max().unwrap_or(to.saturating_sub(from))
    }
}
