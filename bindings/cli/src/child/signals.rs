//! Signals to this process while it waits for the lock and while the command runs.

use std::collections::BTreeSet;
use std::fs;
use std::pin::Pin;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::{Failure, INTERNAL};

/// The signals that this process passes on to the command.
const HANDED_ON: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
];
/// The signals for this process: a child changed its state, or this process was continued.
const OWN: [Signal; 2] = [Signal::SIGCHLD, Signal::SIGCONT];

/// A stream of signals.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Begins to receive signals. Signals that were ignored at the start stay ignored, also for the command, so that
    /// `nohup leasehold run …` works.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let ignored = ignored();
        let wanted = HANDED_ON
            .into_iter()
            .filter(|signal| !ignored.contains(&(*signal as i32)));
        let streams = wanted.chain(OWN).map(|signal| {
            let stream = unix::signal(SignalKind::from_raw(signal as i32));
            stream.map(|stream| (signal, stream))
        });
        let streams = streams.collect::<Result<_, _>>();
        streams
            .map(Self)
            .map_err(|error| Failure::new(INTERNAL, format!("listening for signals: {error}")))
    }

    /// Returns the next signal. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if Pin::new(stream).poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the next signal that asks this process to end.
    pub(crate) async fn next_end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::SIGCHLD | Signal::SIGCONT | Signal::SIGUSR1 | Signal::SIGUSR2 => {}
                // A process with a handler for this signal does not stop by itself.
                Signal::SIGTSTP => drop(nix::sys::signal::raise(Signal::SIGSTOP)),
                signal => return signal,
            }
        }
    }
}

/// Returns the numbers of the signals that this process ignores, as far as the system shows them.
fn ignored() -> BTreeSet<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    let mask = mask.unwrap_or_default();
    (1..=64)
        .filter(|number| mask >> (number - 1) & 1 == 1)
        .collect()
}
