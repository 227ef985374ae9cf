//! Keeps requests in order after a drop or a refusal.
//!
//! Tasks normally hand their batches to the store's client in any order, which is fine while callers await
//! replies. A task that drops a lease or a call, or that is refused a lock it waited for, goes on at once:
//! its next request must be sent after the release. This order holds because:
//!
//! 1. The engine's outbox of a server is first in, first out, and the release enters it before the task goes
//!    on.
//! 2. From then until nothing is left to send, one task at a time takes batches out.
//!    [`hold_back`](SendOrder::hold_back) keeps the operations of all others in the engine.
//! 3. That task polls its batches in the order in which it took them. Its [`Sending`] ends once the last one
//!    was polled and is on its way. Only then does another task take batches out.
//! 4. If others have operations by then, a new task sends them, so nothing stays behind.

use std::sync::Arc;

use super::{Driver, Input};

#[derive(Default)]
pub(super) struct SendOrder {
    is_kept: bool,
    /// True while a task is handing batches over.
    is_sending: bool,
    /// True if others may have operations to send since then. They stay in the engine.
    others: bool,
}

/// The time from taking batches out of the engine until they are on their way, while order is kept. When it
/// ends, operations that others added meanwhile are sent by a new task.
pub(super) struct Sending(Arc<Driver>);

impl SendOrder {
    /// Begins to keep order if the input is a release or a cancellation that no caller awaits.
    pub(super) fn hear(&mut self, input: &Input) {
        self.is_kept |= matches!(
            input,
            Input::Release { call: None, .. } | Input::Cancel { .. }
        );
    }

    /// Begins to keep order if callers were refused a lock and their releases are still unsent: the callers
    /// go on at once.
    pub(super) fn hear_refusal(&mut self) {
        self.is_kept = true;
    }

    /// Returns true if operations must stay in the engine until the other task has handed over its batches.
    pub(super) fn hold_back(&mut self) -> bool {
        self.others |= self.is_sending;
        self.is_sending
    }

    /// Returns a guard to hold until the batches are on their way, or `None` while no order is kept.
    pub(super) fn begin(&mut self, driver: &Arc<Driver>) -> Option<Sending> {
        self.is_sending = self.is_kept;
        self.is_sending.then(|| Sending(driver.clone()))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let driver = &self.0;
        let gathers = {
            let state = &mut *driver.state();
            let is_left = state.engine.has_unsent();
            let others = is_left && state.order.others;
            state.order = SendOrder {
                is_kept: is_left,
                ..SendOrder::default()
            };
            others && !std::mem::replace(&mut state.gathers, true)
        };
        if gathers {
            // In a task of its own: while many drop leases there would always be more to send, and this may
            // run in a program's `drop`.
            driver.runtime.spawn(driver.clone().gather());
        }
    }
}
