//! Encodes commands as the script's keys and arguments.

use super::text::Writer;
use crate::protocol::key::LockKey;
use crate::protocol::limits::TOKEN_LENGTH;
use crate::protocol::ops::{Command, Op};

/// The keys and arguments of one call of the [script](crate::protocol::SCRIPT). They share one buffer,
/// because a batch may have hundreds of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScriptCall {
    text: Vec<u8>,
    /// Where each key and argument ends in the text, keys first.
    ends: Vec<usize>,
    keys: usize,
}

/// Encodes a batch. The server does nothing past the earliest `not_after` in it, unless all operations are
/// releases, which are harmless however late they run. An empty batch only asks for the server's time.
pub fn encode(batch: &[Op]) -> ScriptCall {
    let mut call = ScriptCall {
        text: Vec::with_capacity(batch.iter().map(|op| op.command.size()).sum()),
        ends: Vec::with_capacity(batch.len() * 3 + 1),
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
    let not_after = batch.iter().map(|op| op.not_after.as_micros()).min();
    if !is_timeless(batch) {
        Writer(&mut call.text).number(not_after.unwrap_or(u64::MAX), TOKEN_LENGTH);
    }
    call.ends.push(call.text.len());
    for Op { command, .. } in batch {
        command.write(&mut Writer(&mut call.text));
        call.ends.push(call.text.len());
    }
    call
}

/// Returns true if no operation of the batch depends on the time: all are releases of locks or permits. A release
/// ends only its own lease, and no lease ID is used twice.
pub(crate) fn is_timeless(batch: &[Op]) -> bool {
    let is_release = |op: &Op| matches!(op.command, Command::Release(_) | Command::Vacate(_));
    !batch.is_empty() && batch.iter().all(is_release)
}

impl ScriptCall {
    /// Returns `KEYS`.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.range(0, self.keys).map(text)
    }

    /// Returns `ARGV`.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        self.range(self.keys, self.ends.len()).map(text)
    }

    /// Returns `KEYS` and then `ARGV` as bytes, without a UTF-8 check.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.range(0, self.ends.len())
    }

    /// Returns the text of all keys and arguments, where in it each ends, and how many of them are keys.
    pub fn into_parts(self) -> (Vec<u8>, Vec<usize>, usize) {
        (self.text, self.ends, self.keys)
    }

    fn range(&self, from: usize, to: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        (from..to).map(|index| {
            let begin = index.checked_sub(1).map_or(0, |last| self.ends[last]);
            let part = self.text.get(begin..self.ends[index]);
            part.unwrap_or_default()
        })
    }

    fn push_key(&mut self, key: &LockKey, suffix: &str) {
        let mut text = Writer(&mut self.text);
        text.text(key.lock());
        text.text(suffix);
        self.ends.push(self.text.len());
    }
}

/// Returns a key or argument as text. All of them are UTF-8.
fn text(part: &[u8]) -> &str {
    str::from_utf8(part).unwrap_or_default()
}
