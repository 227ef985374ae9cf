//! The script calls that a server executed, read from MONITOR.

use std::collections::BTreeMap;

use leasehold_tests::Monitor;

/// An operation of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// An acquisition by the waiter with this label.
    Acquire(String),
    /// A renewal of the tenure with this token.
    Renew(String),
    /// A release by the holder or waiter with this label.
    Release(String),
}

/// The commands that a server executed.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// Script calls, each with its operations.
    pub(crate) calls: Vec<Vec<Operation>>,
    /// The messages that scripts published, by channel.
    pub(crate) published: BTreeMap<String, usize>,
    /// Other commands of clients.
    pub(crate) others: Vec<String>,
}

impl Executed {
    pub(crate) async fn read(monitor: &mut Monitor) -> Self {
        let mut executed = Self::default();
        for line in monitor.lines().await {
            executed.add(&line);
        }
        executed
    }

    fn add(&mut self, line: &str) {
        // Neither names nor labels of these tests need quotes or escapes.
        let args: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        let in_script = line.contains(" lua] ");
        let Some(command) = args.first().map(|command| command.to_lowercase()) else {
            return;
        };
        match &*command {
            "publish" if in_script => {
                *self.published.entry(args[1].to_owned()).or_default() += 1;
            }
            _ if in_script => {}
            "evalsha" | "eval" => self.calls.push(operations(&args)),
            // The test itself sends these.
            "info" | "zcount" | "zrangebyscore" | "hgetall" | "time" | "keys" | "echo"
            | "config" => {}
            _ => self.others.push(line.to_owned()),
        }
    }

    /// Returns how many calls did more than ask for waiters.
    pub(crate) fn calls_of_holders(&self) -> usize {
        let asks = |operation: &Operation| matches!(operation, Operation::Acquire(_));
        let calls = self.calls.iter();
        calls
            .filter(|operations| !operations.iter().all(asks))
            .count()
    }

    /// Returns how often each operation was executed.
    pub(crate) fn operations(&self) -> BTreeMap<&Operation, usize> {
        let mut counts = BTreeMap::new();
        for operation in self.calls.iter().flatten() {
            *counts.entry(operation).or_default() += 1;
        }
        counts
    }

    /// Returns how often a waiter asked.
    pub(crate) fn asks(&self, label: &str) -> usize {
        let asked = Operation::Acquire(label.to_owned());
        self.operations().get(&asked).copied().unwrap_or_default()
    }
}

/// The offsets of these in the text of an operation: its letter and its time to live come first.
const RENEW_TOKEN: usize = 1 + 11 + 11 + 32;
const ACQUIRE_LABEL: usize = 1 + 11 + 1 + 16 + 5 + 11 + 32 + 16 + 1;
const RELEASE_LABEL: usize = 1 + 11 + 5 + 11 + 32 + 16 + 16 + 1;

fn operations(args: &[&str]) -> Vec<Operation> {
    // The operations follow the script, the number of keys, the keys, and the time until which to act.
    let keys: usize = args[2].parse().expect("a number of keys");
    let found = args[4 + keys..].iter().filter_map(|text| {
        let from = |place: usize| text[place..].to_owned();
        match &text[..1] {
            "a" | "A" => Some(Operation::Acquire(from(ACQUIRE_LABEL))),
            "r" | "R" => Some(Operation::Renew(from(RENEW_TOKEN))),
            "d" | "D" => Some(Operation::Release(from(RELEASE_LABEL))),
            _ => None,
        }
    });
    found.collect()
}
