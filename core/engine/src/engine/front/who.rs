//! The identity of a contender: its lease, its handle and its lock.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::ctx::Ctx;
use crate::engine::io::LockId;
use crate::engine::spec::LockSpec;
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

    /// Limits the age of the lease, counted from the beginning of its tenure.
    pub(crate) fn limit(&mut self, age: Duration) {
        let spec = Arc::make_mut(&mut self.spec);
        Arc::make_mut(&mut spec.options).at_most = Some(age);
    }

    pub(crate) fn emit(&self, cx: &mut Ctx, event: LeaseEvent, deadline: Option<Timestamp>) {
        cx.emit((self.lock, self.lease), event, deadline);
    }
}
