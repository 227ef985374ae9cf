//! From commands to the script's keys and arguments.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::protocol::key::LockKey;
use crate::protocol::ops::{Form, Op};

/// The keys and arguments of one call of the [script](crate::protocol::SCRIPT), all in one piece of memory:
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
    for Op { command, .. } in batch {
        if let Some(key) = command.key() {
            for suffix in command.form().keys {
                call.push_key(key, suffix);
            }
        }
    }
    call.keys = call.ends.len();
    for Op { command, not_after } in batch {
        let Form { name, args, .. } = command.form();
        call.push(name);
        call.push(not_after.as_micros());
        let mut pushed = Arguments {
            call: &mut call,
            count: 0,
        };
        command.push_args(&mut pushed);
        // The script would take the next operation's name for an argument of this one.
        debug_assert_eq!(pushed.count, *args, "arguments of {name}");
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

/// The arguments of one operation, which go into a call.
pub(in crate::protocol) struct Arguments<'a> {
    call: &'a mut ScriptCall,
    count: usize,
}

impl Arguments<'_> {
    pub(in crate::protocol) fn push(&mut self, value: impl fmt::Display) {
        self.call.push(value);
        self.count += 1;
    }

    /// A time, of which whole milliseconds count.
    pub(in crate::protocol) fn millis(&mut self, time: Duration) {
        self.push(time.as_millis());
    }
}
