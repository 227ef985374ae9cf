//! Handles: through which of them somebody contends, and when one that was closed is at its end.

use crate::engine::ctx::Ctx;
use crate::engine::io::{LockId, Output};
use crate::engine::table::Table;
use crate::protocol::HalfId;

/// Those that somebody contends through, or whose last release is not confirmed.
#[derive(Debug, Default)]
pub(super) struct Handles(Table<LockId, Handle>);

#[derive(Debug, Default)]
pub(super) struct Handle {
    /// How many contenders and unconfirmed releases it has.
    uses: usize,
    /// Of a re-entrant handle: whose tenure all its calls share.
    pub(super) shared: Option<HalfId>,
    /// Who has the lock, and who else believes so, because the store forgot who had it.
    held: Option<HalfId>,
    forgotten: Vec<HalfId>,
    /// The release of its last tenure, while that is not confirmed.
    pub(super) releasing: Option<HalfId>,
    closed: bool,
}

impl Handles {
    pub(super) fn get(&self, id: LockId) -> Option<&Handle> {
        self.0.get(&id)
    }

    /// Somebody contends through it.
    pub(super) fn enter(&mut self, id: LockId, contender: HalfId, reentrant: bool) {
        let handle = self.0.get_or_insert_with(id, Handle::default);
        handle.uses += 1;
        if reentrant {
            handle.shared = Some(contender);
        }
    }

    /// A contender has the lock from now on.
    pub(super) fn hold(&mut self, id: LockId, contender: HalfId) {
        let handle = self.0.get_or_insert_with(id, Handle::default);
        handle.forgotten.extend(handle.held.replace(contender));
    }

    /// A contender neither wants the lock any more nor has it. The handle has to be
    /// [left](Self::leave) once all is emitted that there is to emit.
    pub(super) fn give_up(&mut self, id: LockId, contender: HalfId) {
        if let Some(handle) = self.0.get_mut(&id) {
            if handle.held == Some(contender) {
                handle.held = handle.forgotten.pop();
            } else {
                handle.forgotten.retain(|held| *held != contender);
            }
            handle.shared.take_if(|shared| *shared == contender);
        }
    }

    /// It waits for the release of this tenure before it can be closed.
    pub(super) fn await_release(&mut self, id: LockId, release: HalfId) {
        let handle = self.0.get_or_insert_with(id, Handle::default);
        handle.uses += 1;
        handle.releasing = Some(release);
    }

    /// The release of its tenure is over, as far as it is concerned.
    pub(super) fn released(&mut self, cx: &mut Ctx, id: LockId, release: HalfId) {
        if let Some(handle) = self.0.get_mut(&id) {
            handle.releasing.take_if(|releasing| *releasing == release);
        }
        self.leave(cx, id);
    }

    /// A contender of it, or the release of its tenure, is at its end.
    pub(super) fn leave(&mut self, cx: &mut Ctx, id: LockId) {
        let Some(handle) = self.0.get_mut(&id) else {
            return;
        };
        handle.uses -= 1;
        if handle.uses == 0 {
            let closed = handle.closed;
            self.0.take(&id);
            if closed {
                cx.push(Output::Closed { lock: id });
            }
        }
    }

    /// The program has dropped it.
    pub(super) fn close(&mut self, cx: &mut Ctx, id: LockId) {
        match self.0.get_mut(&id) {
            Some(handle) => handle.closed = true,
            None => cx.push(Output::Closed { lock: id }),
        }
    }
}

impl Handle {
    /// Who has the lock, or believes so.
    pub(super) fn holders(&self) -> impl Iterator<Item = &HalfId> {
        self.held.iter().chain(&self.forgotten)
    }
}
