//! The history of a round: the calls of each client and their results, one JSON object per line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The kind of an [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    /// A client is about to call an operation.
    Call,
    /// An operation has ended. Without this entry its outcome is unknown.
    Return,
    /// A lease said that it was valid, at this time or later.
    Valid,
    /// A client was told of the loss of a lease.
    Lost,
}

/// An operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Acquires a lock.
    Acquire,
    /// Reads the register of a name under a token, and raises the fence to that token.
    Read,
    /// Writes the register of a name under a token.
    Write,
    /// Releases a lease.
    Release,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The operation was done.
    Ok,
    /// The lock was not acquired in time.
    None,
    /// The store refused the token.
    Stale,
    /// The call failed, and whether it had an effect is not known.
    Failed,
}

/// An entry of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The time by `CLOCK_MONOTONIC`, which all processes of a machine share, in nanoseconds.
    pub at: u64,
    /// The process and its worker, such as `rust-0.2/1`: the third process of the first client, its second worker.
    pub client: String,
    /// The number of the operation, for each client.
    pub op: u64,
    /// The kind of the entry.
    pub event: Event,
    /// The operation of a call or return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The name of the lock, and of the register; once a slot is held, its resource, such as `a#2`.
    pub name: String,
    /// True for the acquisition of a reader.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reads: bool,
    /// The token of the last writer, as an acquisition for reading or writing told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The fencing token, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The value that is written, or was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The outcome of a return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The reason of a loss, or the text of an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// How long after the deadline a loss was told, in nanoseconds; negative if before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<i64>,
    /// The longest time, in nanoseconds, in which the client did not look at a lease that it lost, since it last found the
    /// lease valid. A stopped process does not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<u64>,
}

/// Returns the time by the clock of histories, in nanoseconds.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + nanos
}

/// Appends the entries of one worker to a file. A process that is killed leaves whole lines behind.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    client: String,
    op: u64,
}

impl Recorder {
    /// Opens the file, which several workers and processes may share.
    pub fn open(path: &Path, client: String) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            file,
            client,
            op: 0,
        })
    }

    /// Returns an entry of this worker's present operation, at the present time.
    pub fn entry(&self, event: Event, name: &str) -> Entry {
        Entry {
            at: now(),
            client: self.client.clone(),
            op: self.op,
            event,
            kind: None,
            name: name.to_owned(),
            reads: false,
            generation: None,
            token: None,
            value: None,
            outcome: None,
            text: None,
            late: None,
            unseen: None,
        }
    }

    /// Records an entry, by a single write.
    pub fn record(&mut self, entry: &Entry) {
        let mut line = serde_json::to_vec(entry).expect("an entry has a JSON form");
        line.push(b'\n');
        self.file
            .write_all(&line)
            .expect("the history can be written");
    }

    /// Records the call of a new operation.
    pub fn call(&mut self, kind: Kind, name: &str, token: Option<u64>, value: Option<String>) {
        self.op += 1;
        let entry = Entry {
            kind: Some(kind),
            token,
            value,
            ..self.entry(Event::Call, name)
        };
        self.record(&entry);
    }

    /// Records the return of the present operation.
    pub fn back(
        &mut self,
        kind: Kind,
        name: &str,
        outcome: Outcome,
        change: impl FnOnce(&mut Entry),
    ) {
        let mut entry = Entry {
            kind: Some(kind),
            outcome: Some(outcome),
            ..self.entry(Event::Return, name)
        };
        change(&mut entry);
        self.record(&entry);
    }

    /// Returns a value that nobody else writes.
    pub fn value(&self) -> String {
        format!("{}#{}", self.client, self.op + 1)
    }

    /// Returns the number of the present operation.
    pub fn op(&self) -> u64 {
        self.op
    }

    /// Leaves out the numbers of this many operations, which another process records.
    #[must_use]
    pub fn skip(mut self, operations: u64) -> Self {
        self.op += operations;
        self
    }
}

/// Reads a history, in the order of time.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path)?;
    let entries = text.lines().map(serde_json::from_str);
    let mut entries = entries.collect::<Result<Vec<Entry>, _>>()?;
    entries.sort_by_key(|entry| entry.at);
    Ok(entries)
}
