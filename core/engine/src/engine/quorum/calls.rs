//! The calls that a quorum makes to the engines of its members.

use crate::engine::io::{CallId, Wait};
use crate::engine::table::Table;
use crate::protocol::HalfId;

/// The purpose of a call to a member.
#[derive(Copy, Clone, Debug)]
pub(super) enum Asked {
    /// Acquires a lease. The caller waits this long.
    Acquire(HalfId, Wait),
    /// Renews a lease until a majority has it.
    Keep,
    /// Raises the member's token counter.
    Raise(HalfId),
    /// Asks whether the member still has a lease, in this round.
    Prove(HalfId, u64),
    /// Renews a lease for a call of the program.
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

    /// Ends a call that was answered. Returns `None` if nobody waits for its answer any more.
    pub(super) fn end(&mut self, call: CallId) -> Option<Asked> {
        self.all.take(&call)
    }

    pub(super) fn forget(&mut self, call: CallId) {
        self.all.take(&call);
    }
}
