//! Handles: through which of them somebody contends, and when one that was closed is at its end.

use crate::engine::ctx::Ctx;
use crate::engine::io::{LockId, Output};
use crate::engine::table::Table;
use crate::protocol::HalfId;

/// Those that somebody contends through, or whose last release is not confirmed.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    all: Table<LockId, Handle>,
    /// Who else believes to have a lock, because the store forgot who had it. Almost always nobody.
    forgotten: Table<LockId, Vec<HalfId>>,
}

/// Small, because a large locker has one for each lease: an option of a number would take its double.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug)]
pub(crate) struct Handle {
    /// Who has the lock, or is to share it with all later calls.
    contender: HalfId,
    is_held: bool,
    is_shared: bool,
    closed: bool,
    is_releasing: bool,
    /// How many contenders and unconfirmed releases it has.
    uses: u32,
    /// The release of its last tenure, while that is not confirmed.
    releasing: HalfId,
}

impl Handles {
    pub(crate) fn get(&self, id: LockId) -> Option<&Handle> {
        self.all.get(&id)
    }

    /// Who has the lock, or believes so.
    pub(crate) fn holders(&self, id: LockId) -> impl Iterator<Item = HalfId> {
        let held = self.get(id).filter(|handle| handle.is_held);
        let forgotten = self.forgotten.get(&id).into_iter().flatten();
        let held = held.map(|handle| handle.contender).into_iter();
        held.chain(forgotten.copied())
    }

    /// Somebody contends through it.
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

    /// A contender has the lock from now on.
    pub(crate) fn hold(&mut self, id: LockId, contender: HalfId) {
        let handle = self.all.get_or_insert_with(id, Handle::new);
        let former = handle.forget();
        handle.contender = contender;
        handle.is_held = true;
        self.forget(id, former);
    }

    /// A contender neither wants the lock any more nor has it. The handle has to be
    /// [left](Self::leave) once all is emitted that there is to emit.
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

    /// Who had the lock leaves it, and it waits for the release of that tenure before it can be closed.
    pub(crate) fn await_release(&mut self, id: LockId, release: HalfId) {
        let Some(handle) = self.all.get_mut(&id) else {
            return;
        };
        handle.releasing = release;
        handle.is_releasing = true;
    }

    /// The release of its tenure is over, as far as it is concerned.
    pub(crate) fn released(&mut self, cx: &mut Ctx, id: LockId, release: HalfId) {
        self.end_use(cx, id, Some(release));
    }

    /// A contender of it, or the release of its tenure, is at its end.
    pub(crate) fn leave(&mut self, cx: &mut Ctx, id: LockId) {
        self.end_use(cx, id, None);
    }

    /// The program has dropped it.
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

    /// Somebody else has taken the place of who had the lock.
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

    /// Of a re-entrant handle: whose tenure all its calls share.
    pub(crate) fn shared(&self) -> Option<HalfId> {
        self.is_shared.then_some(self.contender)
    }

    /// The release of its last tenure, while that is not confirmed.
    pub(crate) fn releasing(&self) -> Option<HalfId> {
        self.is_releasing.then_some(self.releasing)
    }

    /// Somebody else takes the place of who has the lock. Returns who that is.
    fn forget(&mut self) -> Option<HalfId> {
        std::mem::take(&mut self.is_held).then_some(self.contender)
    }
}
