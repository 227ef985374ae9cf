//! Handles: which contenders use each one, and when a closed handle emits its last event.

use crate::engine::ctx::Ctx;
use crate::engine::io::{LockId, Output};
use crate::engine::table::Table;
use crate::protocol::HalfId;

/// The handles that have a contender or an unconfirmed release.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    all: Table<LockId, Handle>,
    /// Earlier holders that still believe they hold the lock, because the store lost it and gave it to
    /// another. Almost always empty.
    forgotten: Table<LockId, Vec<HalfId>>,
}

/// The state of one handle. Kept small, because a large locker has one handle for each lease: an
/// `Option<HalfId>` would take twice the space of an ID.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug)]
pub(crate) struct Handle {
    /// The contender that holds the lock, or whose tenure all later calls are to share.
    contender: HalfId,
    is_held: bool,
    is_shared: bool,
    closed: bool,
    is_releasing: bool,
    /// The number of contenders and unconfirmed releases.
    uses: u32,
    /// The release of the last tenure, valid while `is_releasing`.
    releasing: HalfId,
}

impl Handles {
    pub(crate) fn get(&self, id: LockId) -> Option<&Handle> {
        self.all.get(&id)
    }

    /// Returns every contender that believes it holds the lock.
    pub(crate) fn holders(&self, id: LockId) -> impl Iterator<Item = HalfId> {
        let held = self.get(id).filter(|handle| handle.is_held);
        let forgotten = self.forgotten.get(&id).into_iter().flatten();
        let held = held.map(|handle| handle.contender).into_iter();
        held.chain(forgotten.copied())
    }

    /// Adds a contender to a handle.
    pub(crate) fn enter(&mut self, id: LockId, contender: HalfId, reentrant: bool) {
        let handle = self.all.get_or_insert_with(id, Handle::new);
        handle.uses += 1;
        if reentrant {
            let former = handle.forget();
            handle.contender = contender;
            handle.is_shared = true;
            self.forget(id, former);
        }
    }

    /// Records that a contender holds the lock.
    pub(crate) fn hold(&mut self, id: LockId, contender: HalfId) {
        let handle = self.all.get_or_insert_with(id, Handle::new);
        let former = handle.forget();
        handle.contender = contender;
        handle.is_held = true;
        self.forget(id, former);
    }

    /// Removes a contender that neither wants nor holds the lock any more. The caller has to
    /// [leave](Self::leave) the handle once it has emitted all events.
    pub(crate) fn give_up(&mut self, id: LockId, contender: HalfId) {
        let Some(handle) = self.all.get_mut(&id) else {
            return;
        };
        let mut forgotten = self.forgotten.take(&id).unwrap_or_default();
        if handle.contender == contender {
            let next = forgotten.pop();
            handle.is_shared = false;
            handle.is_held = next.is_some();
            handle.contender = next.unwrap_or(contender);
        } else {
            forgotten.retain(|held| *held != contender);
        }
        if !forgotten.is_empty() {
            self.forgotten.insert(id, forgotten);
        }
    }

    /// Keeps the handle open until the release of its tenure ends.
    pub(crate) fn await_release(&mut self, id: LockId, release: HalfId) {
        let Some(handle) = self.all.get_mut(&id) else {
            return;
        };
        handle.releasing = release;
        handle.is_releasing = true;
    }

    /// Ends the handle's wait for a release.
    pub(crate) fn released(&mut self, cx: &mut Ctx, id: LockId, release: HalfId) {
        self.end_use(cx, id, Some(release));
    }

    /// Ends one use of the handle: by a contender, or by the release of its tenure.
    pub(crate) fn leave(&mut self, cx: &mut Ctx, id: LockId) {
        self.end_use(cx, id, None);
    }

    /// Marks the handle as dropped by the program.
    pub(crate) fn close(&mut self, cx: &mut Ctx, id: LockId) {
        match self.all.get_mut(&id) {
            Some(handle) => handle.closed = true,
            None => cx.push(Output::Closed { lock: id }),
        }
    }
}

impl Handles {
    fn end_use(&mut self, cx: &mut Ctx, id: LockId, release: Option<HalfId>) {
        let Some(handle) = self.all.get_mut(&id) else {
            return;
        };
        handle.is_releasing &= release != Some(handle.releasing);
        handle.uses -= 1;
        if handle.uses == 0 {
            let closed = handle.closed;
            self.all.take(&id);
            if closed {
                cx.push(Output::Closed { lock: id });
            }
        }
    }

    /// Remembers a holder whose place another contender took.
    fn forget(&mut self, id: LockId, former: Option<HalfId>) {
        if let Some(former) = former {
            let forgotten = self.forgotten.get_or_insert_with(id, Vec::new);
            forgotten.push(former);
        }
    }
}

impl Handle {
    fn new() -> Self {
        let nobody = HalfId(0);
        Self {
            contender: nobody,
            is_held: false,
            is_shared: false,
            closed: false,
            is_releasing: false,
            uses: 0,
            releasing: nobody,
        }
    }

    /// The contender that all calls share, for a re-entrant handle.
    pub(crate) fn shared(&self) -> Option<HalfId> {
        self.is_shared.then_some(self.contender)
    }

    /// The release of the last tenure, until the store confirms it.
    pub(crate) fn releasing(&self) -> Option<HalfId> {
        self.is_releasing.then_some(self.releasing)
    }

    /// Returns the holder, if there is one, before another contender takes its place.
    fn forget(&mut self) -> Option<HalfId> {
        std::mem::take(&mut self.is_held).then_some(self.contender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::settings::Settings;
    use crate::protocol::ClientId;

    const LOCK: LockId = LockId(1);

    /// Catches a holder that new readers of events miss, because another holder with its handle is gone.
    #[test]
    fn a_handle_knows_the_holders_that_are_left() {
        for gone in 1..=3 {
            let mut handles = Handles::default();
            for id in 1..=3 {
                handles.enter(LOCK, HalfId(id), false);
                handles.hold(LOCK, HalfId(id));
            }
            handles.give_up(LOCK, HalfId(gone));
            let mut left: Vec<_> = handles.holders(LOCK).map(|id| id.0).collect();
            left.sort_unstable();
            let others: Vec<_> = (1..=3).filter(|id| *id != gone).collect();
            assert_eq!(left, others);
        }
    }

    /// Catches a handle that waits for a release that has ended, and one that waits for none of its own.
    #[test]
    fn a_handle_waits_for_its_release_until_that_ends() {
        let (mut cx, mut handles) = (Ctx::new(Settings::new(ClientId(1))), Handles::default());
        let [first, second] = [1, 2].map(HalfId);
        let releasing = |handles: &Handles| handles.get(LOCK).and_then(Handle::releasing);
        handles.enter(LOCK, first, false);
        handles.enter(LOCK, second, false);
        handles.leave(&mut cx, LOCK);
        assert_eq!(releasing(&handles), None);
        handles.enter(LOCK, first, false);
        handles.await_release(LOCK, first);
        handles.released(&mut cx, LOCK, first);
        assert_eq!(releasing(&handles), None);
    }
}
