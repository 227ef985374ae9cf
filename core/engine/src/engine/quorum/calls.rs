//! The calls that a quorum makes of its members.

use crate::engine::io::{CallId, Wait};
use crate::engine::table::Table;
use crate::protocol::HalfId;

/// What was asked of which member, and for whom.
#[derive(Copy, Clone, Debug)]
pub(super) enum Asked {
    /// With how long the caller waits.
    Acquire(HalfId, Wait),
    /// To keep it until the others have it as well.
    Keep,
    /// Its counter is to be raised.
    Raise(HalfId),
    /// Whether it still has it, in this round.
    Prove(HalfId, u64),
    /// A renewal that the program asked for by this call.
    Renew(HalfId, CallId),
    Release(HalfId),
    Query(CallId),
    Shutdown,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    all: Table<CallId, Asked>,
    last: u64,
}

impl Calls {
    pub(super) fn begin(&mut self, asked: Asked) -> CallId {
        self.last += 1;
        let call = CallId(self.last);
        self.all.insert(call, asked);
        call
    }

    /// Its answer is here; nothing if nobody waits for it any more.
    pub(super) fn end(&mut self, call: CallId) -> Option<Asked> {
        self.all.take(&call)
    }

    pub(super) fn forget(&mut self, call: CallId) {
        self.all.take(&call);
    }
}
