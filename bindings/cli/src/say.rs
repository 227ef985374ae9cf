//! Messages on standard error. A thread of its own writes them, because a slow reader must not block the task that
//! watches the deadline.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use leasehold::LeaseEvent;
use leasehold_observe::escaped;
use serde::Serialize;

use crate::exit::Failure;
use crate::times::show;

/// The most lines that may wait to be written; further lines are dropped.
const UNWRITTEN: usize = 1_024;
/// How long this process waits for the reader when it ends.
const AT_THE_END: Duration = Duration::from_millis(500);

/// The messages of this program, as text or as JSON.
#[derive(Debug)]
pub(crate) struct Voice {
    json: bool,
    terminal: bool,
    lines: SyncSender<String>,
    silent: Receiver<()>,
}

#[derive(Serialize)]
struct Note<'a> {
    r#type: &'static str,
    message: &'a str,
}

impl Voice {
    pub(crate) fn new(json: bool) -> Self {
        let (lines, unwritten) = sync_channel::<String>(UNWRITTEN);
        let (end, silent) = sync_channel(1);
        thread::spawn(move || {
            for mut line in unwritten {
                line.push('\n');
                // There is nowhere to report this error.
                let _ = io::stderr().write_all(line.as_bytes());
            }
            drop(end);
        });
        Self {
            json,
            terminal: io::stderr().is_terminal(),
            lines,
            silent,
        }
    }

    /// Writes a note.
    pub(crate) fn note(&self, what: &str) {
        if self.json {
            let (r#type, message) = ("note", what);
            self.put(serde_json::to_string(&Note { r#type, message }).unwrap_or_default());
        } else {
            self.put(escaped(&format!("leasehold: {what}")));
        }
    }

    /// Writes a note that only people and readers of JSON want: a machine's cron would mail it.
    pub(crate) fn aside(&self, what: &str) {
        if self.json || self.terminal {
            self.note(what);
        }
    }

    /// Writes an event. JSON has all events, text only those that a person must know about.
    pub(crate) fn event(&self, event: &LeaseEvent) {
        if self.json {
            return self.put(serde_json::to_string(event).unwrap_or_default());
        }
        match event {
            LeaseEvent::Waiting { name, position } if self.terminal => {
                let place = position.map(|place| format!(", place {place} in line"));
                self.note(&format!("{name} is held: waiting{}", place.unwrap_or_default()));
            }
            LeaseEvent::AtRisk {
                name,
                remaining,
                error,
                ..
            } => self.note(&format!("{name} is at risk, {} left: {error}", show(*remaining))),
            LeaseEvent::Wanted {
                name, by, within, ..
            } => {
                let within = show(*within);
                self.note(&format!("{name} is wanted by {by}, within {within}"));
            }
            LeaseEvent::CapacityDiffers {
                name,
                capacity,
                wanted,
                ..
            } => self.note(&format!(
                "{name} has the capacity {capacity} at the store, not {wanted}: leasehold resize changes it"
            )),
            LeaseEvent::ClockDrift { drift_margin } => self.note(&format!(
                "the store's clock and this machine's run at different rates: leases end earlier, by {drift_margin} ppm"
            )),
            _ => {}
        }
    }

    /// Writes the reason of a failure.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json {
            self.put(failure.json());
        } else {
            self.put(escaped(&format!("leasehold: {failure}")));
        }
    }

    /// Waits a moment until all lines are written.
    pub(crate) fn finish(self) {
        let Self { lines, silent, .. } = self;
        drop(lines);
        let _ = silent.recv_timeout(AT_THE_END);
    }

    fn put(&self, line: String) {
        let _ = self.lines.try_send(line);
    }
}
