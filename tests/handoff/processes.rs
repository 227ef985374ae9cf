//! Processes that wait in line.

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use leasehold_tests::{Child, RedisServer};

use crate::LIMIT;

/// The use that a waiter makes of its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// Releases the lock at once.
    Pass,
    /// Holds the lock until the process is killed.
    Hold,
}

/// A lock that a waiter got.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) label: String,
    pub(crate) token: u64,
    /// The time of the grant, since 1970.
    pub(crate) at: Duration,
}

/// A `waiters` process.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) async fn start(server: &RedisServer, lockers: usize) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_waiters"));
        let mut child = Child::spawn(program, [server.url(), lockers.to_string()]);
        child.wait_line("ready", LIMIT * 2).await;
        Self(child)
    }

    pub(crate) async fn start_all(server: &RedisServer, count: usize, lockers: usize) -> Vec<Self> {
        join_all((0..count).map(|_| Self::start(server, lockers))).await
    }

    pub(crate) fn ask(&mut self, label: &str, name: &str, ttl: Duration, then: Then) {
        let then = match then {
            Then::Pass => "pass",
            Then::Hold => "hold",
        };
        let line = format!("ask {label} {name} {} {then}", ttl.as_millis());
        self.0.write_line(&line);
    }

    /// Returns the next lock that one of its waiters gets.
    pub(crate) async fn granted(&mut self, limit: Duration) -> Granted {
        let line = self.0.wait_line("", limit).await;
        let words: Vec<&str> = line.split(' ').collect();
        let ["granted", label, token, at] = words[..] else {
            panic!("the process said {line:?}");
        };
        let number = |digits: &str| digits.parse().expect("the process prints numbers");
        Granted {
            label: label.to_owned(),
            token: number(token),
            at: Duration::from_micros(number(at)),
        }
    }

    /// Returns the next `count` locks that its waiters get.
    pub(crate) async fn grants(&mut self, count: usize, limit: Duration) -> Vec<Granted> {
        let mut grants = Vec::with_capacity(count);
        while grants.len() < count {
            grants.push(self.granted(limit).await);
        }
        grants
    }
}

/// Sorts grants by token and returns their labels. Panics if two tokens are equal.
pub(crate) fn by_token(grants: &mut [Granted]) -> Vec<String> {
    grants.sort_by_key(|granted| granted.token);
    for pair in grants.windows(2) {
        assert!(pair[0].token < pair[1].token, "{pair:?} have one token");
    }
    grants.iter().map(|granted| granted.label.clone()).collect()
}

/// Returns the longest time between two grants that are sorted by token.
pub(crate) fn longest_gap(grants: &[Granted]) -> Duration {
    let gaps = grants
        .windows(2)
        .map(|pair| pair[1].at.saturating_sub(pair[0].at));
    gaps.max().unwrap_or_default()
}

pub(crate) fn now() -> Duration {
    std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("the clock is past 1970")
}
