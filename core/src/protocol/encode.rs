//! From commands to the script's keys and arguments.

use std::time::Duration;

use super::command::{Acquire, Command, Counter, Op};
use crate::name::Owner;

/// The keys and arguments of one call of the [script](super::SCRIPT).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ScriptCall {
    /// `KEYS`.
    pub keys: Vec<String>,
    /// `ARGV`.
    pub args: Vec<String>,
}

/// Encodes a batch. An empty one only asks for the server's time.
pub fn encode(batch: &[Op]) -> ScriptCall {
    let mut call = ScriptCall {
        keys: Vec::with_capacity(batch.len() * 2),
        args: Vec::with_capacity(batch.len() * 8),
    };
    for op in batch {
        call.args.push(operation(&op.command).to_owned());
        call.args.push(op.not_after.as_micros().to_string());
        call.push(&op.command);
    }
    call
}

impl ScriptCall {
    fn push(&mut self, command: &Command) {
        self.keys.push(command.key().lock());
        match command {
            Command::Acquire(acquire) => self.push_acquire(acquire),
            Command::Renew {
                lease, token, ttl, ..
            } => {
                self.args.push(lease.to_string());
                self.args.push(token.to_string());
                self.args.push(millis(*ttl));
            }
            Command::Release { lease, .. } => self.args.push(lease.to_string()),
            Command::ForceRelease { .. } => {}
            Command::Inspect { key } => self.keys.push(key.token()),
        }
    }

    fn push_acquire(&mut self, acquire: &Acquire) {
        self.keys.push(acquire.key.token());
        self.args.push(acquire.lease.to_string());
        self.args.push(millis(acquire.ttl));
        self.args.push(acquire.client.to_string());
        self.args.push(kind(&acquire.owner).to_owned());
        self.args.push(acquire.owner.label().to_owned());
        self.args.push(match acquire.counter {
            Counter::ClockFloor { retention } => millis(retention),
            Counter::Dense => "0".to_owned(),
        });
    }
}

fn operation(command: &Command) -> &'static str {
    match command {
        Command::Acquire(_) => "acquire",
        Command::Renew { .. } => "renew",
        Command::Release { .. } => "release",
        Command::ForceRelease { .. } => "force_release",
        Command::Inspect { .. } => "inspect",
    }
}

pub(super) fn kind(owner: &Owner) -> &'static str {
    if owner.is_reclaimable() { "r" } else { "l" }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
