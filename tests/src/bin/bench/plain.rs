//! `redis-benchmark`: what the server gives a client in C that locks by hand.
//!
//! It knows no pairs of commands, so it runs one after the other: many `SET NX PX` on random
//! keys, then as many compare-and-deletes on random keys. A pair takes the time of one of each,
//! so its rate is 1 / (1 / sets + 1 / deletes). About a third of the sets find their key taken,
//! and more than a third of the deletes find none: that is less work than a pair that succeeds,
//! so the comparison favours it.

use std::process::Command;

use crate::Result;

/// What people write themselves, beside `SET NX PX`.
pub(crate) const COMPARE_AND_DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                                             return redis.call('DEL', KEYS[1]) end return 0";

const PROGRAM: &str = "redis-benchmark";
const REQUESTS: &str = "20000";

pub(crate) struct Plain {
    port: String,
    script: String,
}

impl Plain {
    /// `None` if the program is not there. The script is one that the server has.
    pub(crate) fn find(port: u16, script: &str) -> Option<Self> {
        let version = Command::new(PROGRAM).arg("--version").output().ok()?;
        version.status.success().then(|| Self {
            port: port.to_string(),
            script: script.to_owned(),
        })
    }

    pub(crate) fn thousand_pairs_per_second(&self, callers: usize) -> Result<f64> {
        let key = "plain-__rand_int__";
        let sets = self.rate(callers, &["SET", key, "id", "NX", "PX", "30000"])?;
        let deletes = self.rate(callers, &["EVALSHA", &self.script, "1", key, "id"])?;
        Ok(1.0 / (1.0 / sets + 1.0 / deletes) / 1e3)
    }

    /// How many of the command a second.
    fn rate(&self, callers: usize, command: &[&str]) -> Result<f64> {
        let output = Command::new(PROGRAM)
            .args(["-h", "127.0.0.1", "-p", &self.port, "--csv", "-P", "1"])
            .args(["-c", &callers.to_string(), "-n", REQUESTS, "-r", REQUESTS])
            .args(command)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        // "SET … PX 30000","81967.21","0.006",…
        let line = text.lines().rfind(|line| line.starts_with('"'));
        let rate = line.and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
        let unread = || {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!("{PROGRAM} {command:?} gave no rate: {text}{errors}").into()
        };
        rate.filter(|_| output.status.success()).ok_or_else(unread)
    }
}
