//! Events as traces, for whoever collects those; all that this crate traces has the target `leasehold`. They
//! are written with nothing locked, because that
//! runs the collector's code; only whether somebody collects them is asked before, under the lock.
//!
//! Of what OpenTelemetry's conventions have a name for, fields have that: `error.type`, which is the
//! error's code, and `exception.message`.

use leasehold_engine::LeaseEvent;

/// A copy of the event, if anybody collects traces of its level.
pub(super) fn wanted(event: &LeaseEvent) -> Option<LeaseEvent> {
    let wanted = match event {
        LeaseEvent::Waiting { .. }
        | LeaseEvent::Acquired { .. }
        | LeaseEvent::Renewed { .. }
        | LeaseEvent::Released { .. } => {
            tracing::enabled!(target: "leasehold", tracing::Level::DEBUG)
        }
        _ => tracing::enabled!(target: "leasehold", tracing::Level::WARN),
    };
    wanted.then(|| event.clone())
}

pub(super) fn write(event: &LeaseEvent) {
    match event {
        LeaseEvent::Waiting { name, position } => {
            tracing::debug!(target: "leasehold", %name, position, "waiting in line");
        }
        LeaseEvent::Acquired {
            name,
            token,
            remaining,
        } => tracing::debug!(target: "leasehold", %name, %token, ?remaining, "lease acquired"),
        LeaseEvent::Renewed {
            name,
            token,
            remaining,
        } => tracing::debug!(target: "leasehold", %name, %token, ?remaining, "lease renewed"),
        LeaseEvent::AtRisk {
            name,
            token,
            remaining,
            error,
        } => tracing::warn!(
            target: "leasehold",
            %name,
            %token,
            ?remaining,
            "error.type" = error.kind().code(),
            "exception.message" = %error,
            "lease at risk"
        ),
        LeaseEvent::Lost {
            name,
            token,
            reason,
        } => tracing::warn!(target: "leasehold", %name, %token, %reason, "lease lost"),
        LeaseEvent::Released { name, token } => {
            tracing::debug!(target: "leasehold", %name, %token, "lease released");
        }
        LeaseEvent::ClockDrift { drift_margin } => {
            tracing::warn!(
                target: "leasehold",
                drift_margin,
                "the clocks run apart: the drift margin is wider"
            );
        }
        LeaseEvent::Quarantined { server, remaining } => {
            tracing::warn!(
                target: "leasehold",
                server,
                ?remaining,
                "a server may have forgotten locks, and does not vote"
            );
        }
        LeaseEvent::Readmitted { server } => {
            tracing::warn!(target: "leasehold", server, "a server votes again");
        }
        // Concerns one reader alone: the hub makes it when that reader is too slow.
        LeaseEvent::Lagged { .. } => {}
        // One that the engine has gained since.
        other => tracing::warn!(target: "leasehold", "{other}"),
    }
}
