//! The identity of a contender: its lease, its handle and its lock.

use std::sync::Arc;

use crate::engine::ctx::Ctx;
use crate::engine::io::{LockId, LockSpec};
use crate::event::LeaseEvent;
use crate::protocol::{HalfId, LeaseId};
use crate::time::Timestamp;

/// The part of a contender that never changes.
#[derive(Debug)]
pub(crate) struct Who {
    pub(crate) lease: LeaseId,
    pub(crate) lock: LockId,
    pub(crate) spec: Arc<LockSpec>,
}

impl Who {
    pub(crate) fn id(&self) -> HalfId {
        self.lease.half()
    }

    pub(crate) fn emit(&self, cx: &mut Ctx, event: LeaseEvent, deadline: Option<Timestamp>) {
        cx.emit((self.lock, self.lease), event, deadline);
    }
}
