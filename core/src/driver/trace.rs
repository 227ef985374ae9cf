//! Events for whoever collects traces. They are written with nothing locked; only whether
//! anybody listens is asked before.

use crate::event::LeaseEvent;

/// The event, if anybody listens to its kind.
pub(super) fn wanted(event: &LeaseEvent) -> Option<LeaseEvent> {
    let wanted = match event {
        LeaseEvent::Lost { .. } | LeaseEvent::AtRisk { .. } => {
            tracing::enabled!(tracing::Level::WARN)
        }
        _ => tracing::enabled!(tracing::Level::DEBUG),
    };
    wanted.then(|| event.clone())
}

pub(super) fn write(event: &LeaseEvent) {
    match event {
        LeaseEvent::Lost {
            name,
            token,
            reason,
        } => tracing::warn!(%name, %token, %reason, "lease lost"),
        LeaseEvent::AtRisk {
            name,
            token,
            remaining,
            error,
        } => tracing::warn!(%name, %token, ?remaining, %error, "lease at risk"),
        other => tracing::debug!(event = ?other, "lease"),
    }
}
