//! Ends a locker whose runtime has ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

use leasehold_engine::{Error, ErrorKind};

use super::calls::Delivery;
use super::{CallId, Driver, Input};

/// Owned by the background task. Nothing times out without that task, so if it is dropped early, all pending
/// calls fail.
pub(super) struct TimerTask {
    pub(super) driver: Arc<Driver>,
    ended: bool,
}

impl TimerTask {
    pub(super) fn of(driver: &Arc<Driver>) -> Self {
        Self {
            driver: driver.clone(),
            ended: false,
        }
    }

    /// Marks a regular end of the task.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }
}

impl Drop for TimerTask {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let why = if std::thread::panicking() {
            "the locker's background task panicked"
        } else {
            "the tokio runtime on which the locker was made has ended"
        };
        // Wakers are the program's code and may panic. During a panic a second one would abort the process.
        let _ = catch_unwind(AssertUnwindSafe(|| self.driver.die(why)));
    }
}

impl Driver {
    /// Ends everything at once, without the store: its client ran on the runtime that has ended.
    fn die(self: &Arc<Self>, why: &str) {
        let error = Error::new(ErrorKind::Shutdown, why);
        let failed = {
            let state = &mut *self.state();
            state.dead = Some(error.clone());
            state.calls.fail_all(&error)
        };
        failed.into_iter().for_each(Delivery::deliver);
        // A shutdown loses every lease, wakes the holders and gives readers their events.
        let call = CallId(self.next_id());
        self.step(Input::Shutdown { call });
        let wakers = self.state().hub.end_all();
        wakers.into_iter().for_each(Waker::wake);
        self.stores.abandon(self.client);
    }
}
