//! The pipe by which the command reads the events of its lease, as JSON lines.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};

use leasehold::LeaseEvent;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};

/// The longest line that a pipe takes whole or not at all.
const WHOLE: usize = 4_096;

/// A pipe whose reading end the command inherits.
#[derive(Debug)]
pub(crate) struct EventsPipe {
    read: PipeReader,
    write: Option<PipeWriter>,
    missed: u64,
}

impl EventsPipe {
    /// Opens the pipe. Call this early, so that the descriptor has one digit: some shells read from no other.
    pub(crate) fn new() -> io::Result<Self> {
        let (read, write) = io::pipe()?;
        // A command that does not read must not hold up this process.
        fcntl(&write, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self {
            read,
            write: Some(write),
            missed: 0,
        })
    }

    /// The value of `LEASEHOLD_EVENTS_FD`.
    pub(crate) fn number(&self) -> RawFd {
        self.read.as_raw_fd()
    }

    /// Sets whether processes that are started from now on inherit the reading end.
    pub(super) fn inherit(&self, inherit: bool) -> io::Result<()> {
        let flag = if inherit {
            FdFlag::empty()
        } else {
            FdFlag::FD_CLOEXEC
        };
        fcntl(&self.read, FcntlArg::F_SETFD(flag))?;
        Ok(())
    }

    /// Writes an event. Events that find no room, because the command does not read, are counted and reported as
    /// `lagged` when there is room again.
    pub(crate) fn write(&mut self, event: &LeaseEvent) {
        let Ok(line) = serde_json::to_string(event) else {
            return;
        };
        if self.missed > 0 {
            let lagged = LeaseEvent::Lagged {
                missed: self.missed,
            };
            let line = serde_json::to_string(&lagged).unwrap_or_default();
            if !self.put(line) {
                self.missed += 1;
                return;
            }
            self.missed = 0;
        }
        if !self.put(line) {
            self.missed += 1;
        }
    }

    fn put(&mut self, mut line: String) -> bool {
        line.push('\n');
        if line.len() > WHOLE {
            return false;
        }
        let Some(write) = &mut self.write else {
            return true;
        };
        match write.write_all(line.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.write = None;
                true
            }
            written => written.is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_found_no_room_is_counted() {
        let mut pipe = EventsPipe::new().expect("a pipe");
        let event = |missed| LeaseEvent::Lagged { missed };
        while pipe.missed == 0 {
            pipe.write(&event(0));
        }
        pipe.write(&event(0));
        assert_eq!(pipe.missed, 2);
        let mut reader = pipe.read.try_clone().expect("a second reader");
        let mut full = vec![0; 1 << 16];
        let count = reader.read(&mut full).expect("it is full");
        assert!(count > WHOLE);
        pipe.write(&event(7));
        let mut rest = String::new();
        pipe.write = None;
        drop(pipe);
        reader.read_to_string(&mut rest).expect("text");
        let end = "{\"type\":\"lagged\",\"missed\":2}\n{\"type\":\"lagged\",\"missed\":7}\n";
        assert!(rest.ends_with(end), "{rest}");
    }
}
