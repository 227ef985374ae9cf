//! Signals to child processes that are not reaped yet, so that their ids are certainly theirs.

use std::process::Child;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Sends `signal` to `child`. It has no effect on one that has ended and was not waited for yet.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal)
        .unwrap_or_else(|error| panic!("signal {signal:?} to process {}: {error}", child.id()));
}

/// Stops `child` and returns once it stands still: all of its threads, not merely "soon".
pub(crate) fn pause(child: &Child) {
    signal(child, Signal::STOP);
    let pid = Pid::from_child(child);
    // NOWAIT leaves the child waitable, so that `Child::wait` still finds how it ended.
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = loop {
        match waitid(WaitId::Pid(pid), options) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("waiting for process {} to stop: {error}", child.id()),
            Ok(status) => break status,
        }
    };
    assert!(
        status.is_some_and(|status| status.stopped()),
        "process {} ended instead of stopping",
        child.id()
    );
}

/// Lets `child` run on.
pub(crate) fn resume(child: &Child) {
    signal(child, Signal::CONT);
}

/// Kills `child`, paused or not, and reaps it.
pub(crate) fn kill(child: &mut Child) {
    // A child that has just ended by itself is as dead as it should be.
    drop(child.kill());
    drop(child.wait());
}
