//! From commands to the script's keys and arguments.

use std::time::Duration;

use super::command::{Command, Op};

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
        keys: Vec::with_capacity(batch.len() * 4),
        args: Vec::with_capacity(batch.len() * 5),
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
        match command {
            Command::Acquire(acquire) => {
                self.keys.extend(acquire.key.all());
                self.args.push(acquire.claim.text());
                self.args.push(millis(acquire.ttl));
                self.args
                    .push(if acquire.waits { "1" } else { "0" }.to_owned());
            }
            Command::Renew {
                key,
                lease,
                token,
                ttl,
            } => {
                self.keys.push(key.lock());
                self.args.push(lease.to_string());
                self.args.push(token.to_string());
                self.args.push(millis(*ttl));
            }
            Command::Release { key, claim } => {
                self.keys.extend(key.all());
                self.args.push(claim.text());
            }
            Command::ForceRelease { key } => self.keys.extend(key.all()),
            Command::Inspect { key } => {
                self.keys.extend(key.all());
                self.args.push(Command::MOST_NAMED.to_string());
            }
            Command::List { pattern, cursor } => {
                self.args.push(cursor.to_string());
                self.args.push(pattern.glob());
            }
        }
    }
}

fn operation(command: &Command) -> &'static str {
    match command {
        Command::Acquire(_) => "acquire",
        Command::Renew { .. } => "renew",
        Command::Release { .. } => "release",
        Command::ForceRelease { .. } => "force_release",
        Command::Inspect { .. } => "inspect",
        Command::List { .. } => "list",
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
