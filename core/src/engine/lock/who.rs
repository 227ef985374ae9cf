//! Who contends for a lock, and through which handle.

use std::sync::Arc;

use crate::engine::ctx::Ctx;
use crate::engine::io::{LockId, LockSpec};
use crate::event::LeaseEvent;
use crate::protocol::{HalfId, LeaseId};
use crate::time::Timestamp;

/// What does not change of a contender.
#[derive(Debug)]
pub(super) struct Who {
    pub(super) lease: LeaseId,
    pub(super) lock: LockId,
    pub(super) spec: Arc<LockSpec>,
}

impl Who {
    pub(super) fn id(&self) -> HalfId {
        self.lease.half()
    }

    pub(super) fn emit(&self, cx: &mut Ctx, event: LeaseEvent, deadline: Option<Timestamp>) {
        cx.emit((self.lock, self.lease), event, deadline);
    }
}
