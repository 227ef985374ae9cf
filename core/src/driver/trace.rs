//! Events for whoever collects traces. They are written with nothing locked; only whether
//! anybody listens is asked before.

use crate::event::LeaseEvent;

/// The event, if anybody listens to its kind.
pub(super) fn wanted(event: &LeaseEvent) -> Option<LeaseEvent> {
    let wanted = match event {
        LeaseEvent::Lost { .. } | LeaseEvent::AtRisk { .. } | LeaseEvent::ClockDrift { .. } => {
            tracing::enabled!(tracing::Level::WARN)
        }
        _ => tracing::enabled!(tracing::Level::DEBUG),
    };
    wanted.then(|| event.clone())
}

pub(super) fn write(event: &LeaseEvent) {
    match event {
        LeaseEvent::Waiting { name, position } => {
            tracing::debug!(%name, position, "waiting in line");
        }
        LeaseEvent::Acquired {
            name,
            token,
            remaining,
        } => tracing::debug!(%name, %token, ?remaining, "lease acquired"),
        LeaseEvent::Renewed {
            name,
            token,
            remaining,
        } => tracing::debug!(%name, %token, ?remaining, "lease renewed"),
        LeaseEvent::AtRisk {
            name,
            token,
            remaining,
            error,
        } => tracing::warn!(%name, %token, ?remaining, %error, "lease at risk"),
        LeaseEvent::Lost {
            name,
            token,
            reason,
        } => tracing::warn!(%name, %token, %reason, "lease lost"),
        LeaseEvent::Released { name, token } => {
            tracing::debug!(%name, %token, "lease released");
        }
        LeaseEvent::ClockDrift { drift_margin } => {
            tracing::warn!(
                drift_margin,
                "the clocks run apart: the drift margin is wider"
            );
        }
        // Said by a reader's own place in the events, not by the engine.
        LeaseEvent::Lagged { .. } => {}
    }
}
