//! Keeps batches in order after a drop or a refusal. Tasks normally hand the batches that they took out of the engine
//! to the store's client in any order, which is fine while callers await replies. A task that drops a lease or a call,
//! or that is refused a lock which it waited for, goes on at once: its next request must be sent after the release.
//! From then on, until nothing is left to send, one task at a time takes batches out and hands them over.

use std::sync::Arc;

use super::{Driver, Input};

#[derive(Default)]
pub(super) struct SendOrder {
    is_kept: bool,
    /// Whether a task is handing batches over now.
    is_sending: bool,
    /// Whether others may have something to send since then. It stays in the engine.
    others: bool,
}

/// From when batches are taken out of the engine until they are on their way, while their order is kept. Nobody waits for
/// it: what others have to send meanwhile is gathered when it ends.
pub(super) struct Sending(Arc<Driver>);

impl SendOrder {
    /// The order is kept from now on if nobody waits for what this sends.
    pub(super) fn hear(&mut self, input: &Input) {
        self.is_kept |= matches!(
            input,
            Input::Release { call: None, .. } | Input::Cancel { .. }
        );
    }

    /// The order is kept from now on, too, if callers were refused a lock and their releases have not left yet: the
    /// callers go on at once.
    pub(super) fn hear_refusal(&mut self) {
        self.is_kept = true;
    }

    /// Whether what is to be sent has to stay where it is, until the other task has handed over what it has.
    pub(super) fn hold_back(&mut self) -> bool {
        self.others |= self.is_sending;
        self.is_sending
    }

    /// To be kept until the batches are on their way; nothing while no order is kept.
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
            // Not here: while many drop leases there would always be more, and this may be a program's `drop`.
            driver.runtime.spawn(driver.clone().gather());
        }
    }
}
