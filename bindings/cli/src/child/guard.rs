//! A second process that kills the command's process group if the first one is killed or stopped past the
//! deadline: `kill -9` and `SIGSTOP` leave the first one no time to do so itself.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, setsid};

use super::{now, this_program};

/// The name under which the guard runs.
pub(super) const GUARD: &str = "leasehold: guard";
/// How often the guard checks the time. Its clock goes on while the machine sleeps.
const LOOK: Duration = Duration::from_millis(250);
/// The most orders that may be unread.
const UNREAD: usize = 64;
const READY: u8 = b'.';

/// The handle of the guarded process on its guard.
#[derive(Debug)]
pub(super) struct Guard {
    orders: std::process::ChildStdin,
}

impl Guard {
    /// Starts the guard, and waits until it is out of reach of the terminal's signals.
    pub(super) fn start(name: &str) -> io::Result<Self> {
        let mut child = Command::new(this_program()?)
            .arg0(GUARD)
            .arg(name)
            .env_remove("LEASEHOLD_URL")
            .env_remove("LEASEHOLD_PASSWORD")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut ready = [0];
        let said = child
            .stdout
            .take()
            .map(|mut out| out.read_exact(&mut ready));
        match (child.stdin.take(), said) {
            (Some(orders), Some(Ok(()))) => Ok(Self { orders }),
            _ => Err(io::Error::other("the guard did not start")),
        }
    }

    /// The process group to kill.
    pub(super) fn group(&mut self, group: Pid) {
        self.order(format_args!("group {group}"));
    }

    /// The time at which to kill the group unless another order arrives first; `None` for never.
    pub(super) fn until(&mut self, at: Option<Duration>) {
        match at {
            Some(at) => self.order(format_args!("until {}", at.as_millis())),
            None => self.order(format_args!("until never")),
        }
    }

    /// Tells the guard that the group is gone.
    pub(super) fn done(&mut self) {
        self.order(format_args!("done"));
    }

    fn order(&mut self, order: std::fmt::Arguments<'_>) {
        let mut line = String::new();
        // One write, so that orders do not mix. If the guard is gone, nothing can be done about it.
        let _ = writeln!(line, "{order}");
        let _ = self.orders.write_all(line.as_bytes());
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Watch {
    group: Option<i32>,
    until: Option<Duration>,
    done: bool,
}

impl Watch {
    fn take(&mut self, order: &str) {
        match order.split_once(' ') {
            Some(("group", group)) => self.group = group.parse().ok().filter(|group| *group > 1),
            Some(("until", at)) => self.until = at.parse().ok().map(Duration::from_millis),
            _ => self.done = order == "done",
        }
    }

    /// Returns true if it is time to kill the group.
    fn is_due(&self, now: Duration) -> bool {
        !self.done && self.until.is_some_and(|until| now >= until)
    }

    fn kill(&self) {
        if let Some(group) = self.group.filter(|_| !self.done) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

/// Runs the guard. It ends when its standard input closes, which happens when the guarded process ends.
pub(super) fn main() {
    // Signals that end the other processes must not end the guard first.
    let _ = SigSet::all().thread_block();
    let _ = setsid();
    let orders = orders();
    if io::stdout()
        .write_all(&[READY])
        .and_then(|()| io::stdout().flush())
        .is_err()
    {
        return;
    }
    let mut watch = Watch::default();
    loop {
        let wait = watch
            .until
            .map_or(Duration::MAX, |until| until.saturating_sub(now()));
        match next(&orders, wait.min(LOOK), watch.until.is_some()) {
            Ok(order) => watch.take(&order),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return watch.kill(),
        }
        if watch.is_due(now()) {
            watch.kill();
            watch.until = None;
        }
    }
}

fn next(
    orders: &Receiver<String>,
    wait: Duration,
    timed: bool,
) -> Result<String, RecvTimeoutError> {
    if timed {
        return orders.recv_timeout(wait);
    }
    orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
}

fn orders() -> Receiver<String> {
    let (sender, orders) = sync_channel(UNREAD);
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(orders: &[&str]) -> Watch {
        let mut watch = Watch::default();
        for order in orders {
            watch.take(order);
        }
        watch
    }

    #[test]
    fn it_kills_at_the_last_time_that_it_was_given() {
        let at = Duration::from_millis;
        let watched = watch(&["group 40", "until 1000", "until 2000"]);
        assert!(!watched.is_due(at(1_999)) && watched.is_due(at(2_000)));
        assert!(!watch(&["group 40", "until 1000", "until never"]).is_due(at(5_000)));
        assert!(!watch(&["group 40", "until 1000", "done"]).is_due(at(5_000)));
    }

    #[test]
    fn it_never_takes_a_group_that_is_everybody() {
        for group in ["group 1", "group 0", "group -1", "group x"] {
            assert_eq!(watch(&[group]).group, None, "{group}");
        }
    }
}
