//! Who contends for a lock, and through which handle.

use std::sync::Arc;

use crate::engine::ctx::Ctx;
use crate::engine::io::{LockId, LockSpec};
use crate::event::LeaseEvent;
use crate::protocol::{HalfId, LeaseId};
use crate::time::Timestamp;

/// What does not change of a contender.
#[derive(Debug)]
pub(in crate::engine) struct Who {
    pub(in crate::engine) lease: LeaseId,
    pub(in crate::engine) lock: LockId,
    pub(in crate::engine) spec: Arc<LockSpec>,
}

impl Who {
    pub(in crate::engine) fn id(&self) -> HalfId {
        self.lease.half()
    }

    pub(in crate::engine) fn emit(
        &self,
        cx: &mut Ctx,
        event: LeaseEvent,
        deadline: Option<Timestamp>,
    ) {
        cx.emit((self.lock, self.lease), event, deadline);
    }
}
