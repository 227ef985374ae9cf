//! Keeps batches in order after a drop or a refusal. Tasks normally hand the batches that they took out of the engine
//! to the store's client in any order, which is fine while callers await replies. A task that drops a lease or a call,
//! or that is refused a lock which it waited for, goes on at once: its next request must be sent after the release.
//! From then on, until nothing is left to send, there are turns.

use std::sync::Arc;

use super::{Driver, Input};

#[derive(Default)]
pub(super) struct Turns {
    are_taken: bool,
    is_taken: bool,
    /// Whether others may have something to send since then. It stays in the engine.
    others: bool,
}

/// From when batches are taken out of the engine until they are on their way. Nobody waits for it: what others have to
/// send meanwhile is gathered when it ends.
pub(super) struct Turn(Arc<Driver>);

impl Turns {
    /// They are taken from now on if nobody waits for what this sends.
    pub(super) fn hear(&mut self, input: &Input) {
        self.are_taken |= matches!(
            input,
            Input::Release { call: None, .. } | Input::Cancel { .. }
        );
    }

    /// They are taken from now on too if callers were refused a lock and their releases have not left yet: the
    /// callers go on at once.
    pub(super) fn hear_refusal(&mut self) {
        self.are_taken = true;
    }

    /// Whether what is to be sent has to stay where it is, until the turn ends.
    pub(super) fn hold_back(&mut self) -> bool {
        self.others |= self.is_taken;
        self.is_taken
    }

    /// A turn, if they are taken now.
    pub(super) fn take(&mut self, driver: &Arc<Driver>) -> Option<Turn> {
        self.is_taken = self.are_taken;
        self.is_taken.then(|| Turn(driver.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let driver = &self.0;
        let gathers = {
            let state = &mut *driver.state();
            let is_left = state.engine.has_unsent();
            let others = is_left && state.turns.others;
            state.turns = Turns {
                are_taken: is_left,
                ..Turns::default()
            };
            others && !std::mem::replace(&mut state.gathers, true)
        };
        if gathers {
            // Not here: while many drop leases there would always be more, and this may be a program's `drop`.
            driver.runtime.spawn(driver.clone().gather());
        }
    }
}
