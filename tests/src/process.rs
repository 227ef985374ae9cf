//! Signals to child processes that are not reaped yet, so their IDs are certainly theirs.

use std::process::Child;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Sends `signal` to `child`. It has no effect on a child that has ended and is not reaped yet.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal)
        .unwrap_or_else(|error| panic!("signal {signal:?} to process {}: {error}", child.id()));
}

/// Stops `child` and returns once all of its threads have stopped.
pub(crate) fn pause(child: &Child) {
    signal(child, Signal::STOP);
    let pid = Pid::from_child(child);
    // NOWAIT leaves the child waitable, so that `Child::wait` still gets its exit status.
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

/// Continues `child`.
pub(crate) fn resume(child: &Child) {
    signal(child, Signal::CONT);
}

/// Kills `child`, paused or not, and reaps it.
pub(crate) fn kill(child: &mut Child) {
    // The child may have just ended by itself.
    drop(child.kill());
    drop(child.wait());
}
