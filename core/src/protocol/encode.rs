//! From commands to the script's keys and arguments.

use std::fmt::{self, Write};
use std::time::Duration;

use super::command::{Acquire, Command, ForceRelease, Inspect, List, Op, Reclaim, Release, Renew};
use super::key::LockKey;

/// The keys and arguments of one call of the [script](super::SCRIPT), all in one piece of memory:
/// a batch may have a thousand of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScriptCall {
    text: String,
    /// Where in the text each ends, keys first.
    ends: Vec<usize>,
    keys: usize,
}

/// Encodes a batch. An empty one only asks for the server's time.
pub fn encode(batch: &[Op]) -> ScriptCall {
    let mut call = ScriptCall {
        text: String::with_capacity(batch.iter().map(|op| op.command.size()).sum()),
        ends: Vec::with_capacity(batch.len() * 9),
        keys: 0,
    };
    for op in batch {
        call.push_keys(&op.command);
    }
    call.keys = call.ends.len();
    for op in batch {
        call.push(operation(&op.command));
        call.push(op.not_after.as_micros());
        call.push_args(&op.command);
    }
    call
}

impl ScriptCall {
    /// `KEYS`.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.range(0, self.keys)
    }

    /// `ARGV`.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        self.range(self.keys, self.ends.len())
    }

    /// The text of all keys and arguments, where in it each ends, and how many of them are keys.
    #[cfg(feature = "native")]
    pub(crate) fn into_parts(self) -> (String, Vec<usize>, usize) {
        (self.text, self.ends, self.keys)
    }

    fn range(&self, from: usize, to: usize) -> impl ExactSizeIterator<Item = &str> {
        (from..to).map(|index| {
            let begin = index.checked_sub(1).map_or(0, |last| self.ends[last]);
            let part = self.text.get(begin..self.ends[index]);
            part.unwrap_or_default()
        })
    }

    fn push_keys(&mut self, command: &Command) {
        match command {
            Command::Renew(Renew { key, .. }) => self.push_key(key, LockKey::LOCK),
            Command::Acquire(Acquire { key, .. })
            | Command::Release(Release { key, .. })
            | Command::ForceRelease(ForceRelease { key, .. })
            | Command::Inspect(Inspect { key }) => {
                for suffix in LockKey::SUFFIXES {
                    self.push_key(key, suffix);
                }
            }
            Command::List(_) => {}
        }
    }

    fn push_args(&mut self, command: &Command) {
        match command {
            Command::Acquire(acquire) => {
                self.push(&acquire.claim);
                self.push(Millis(acquire.ttl));
                self.push(if acquire.waits { '1' } else { '0' });
                match acquire.reclaims {
                    Reclaim::Ask => self.push('?'),
                    Reclaim::From(token) => self.push(token),
                    Reclaim::Never => self.push('0'),
                }
            }
            Command::Renew(Renew {
                lease, token, ttl, ..
            }) => {
                self.push(lease);
                self.push(token);
                self.push(Millis(*ttl));
            }
            Command::Release(Release { claim, .. }) => self.push(claim),
            Command::ForceRelease(ForceRelease { token, .. }) => self.push(token),
            Command::Inspect(_) => self.push(Command::MOST_NAMED),
            Command::List(List { pattern, cursor }) => {
                self.push(cursor);
                self.push(pattern.glob());
            }
        }
    }

    fn push_key(&mut self, key: &LockKey, suffix: &str) {
        self.text.push_str(key.tag());
        self.text.push_str(suffix);
        self.ends.push(self.text.len());
    }

    fn push(&mut self, value: impl fmt::Display) {
        write!(self.text, "{value}").expect("a string takes any text");
        self.ends.push(self.text.len());
    }
}

fn operation(command: &Command) -> &'static str {
    match command {
        Command::Acquire(_) => "acquire",
        Command::Renew(_) => "renew",
        Command::Release(_) => "release",
        Command::ForceRelease(_) => "force_release",
        Command::Inspect(_) => "inspect",
        Command::List(_) => "list",
    }
}

struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_millis().fmt(f)
    }
}
