//! Events as traces, with the target `leasehold`, which all traces of this crate have.
//!
//! Writing a trace runs the collector's code, so nothing is locked then. Only the question whether the level
//! is enabled is asked under the lock.
//!
//! Fields have the names of OpenTelemetry's conventions where these define one: `error.type`, which is the
//! error's code, and `exception.message`.

use leasehold_engine::LeaseEvent;

/// Returns a copy of the event if its level is enabled.
pub(super) fn wanted(event: &LeaseEvent) -> Option<LeaseEvent> {
    let wanted = match event {
        LeaseEvent::Waiting { .. }
        | LeaseEvent::Acquired { .. }
        | LeaseEvent::Renewed { .. }
        | LeaseEvent::Begun { .. }
        | LeaseEvent::Completed { .. }
        | LeaseEvent::Wanted { .. }
        | LeaseEvent::Passed { .. }
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
        LeaseEvent::Begun { name, token, tick } => {
            tracing::debug!(target: "leasehold", %name, %token, tick, "tick begun");
        }
        LeaseEvent::Missed {
            name,
            token,
            first,
            ticks,
        } => tracing::warn!(target: "leasehold", %name, %token, first, ticks, "ticks missed"),
        LeaseEvent::Completed { name, token, tick } => {
            tracing::debug!(target: "leasehold", %name, %token, tick, "tick completed");
        }
        LeaseEvent::CapacityDiffers {
            name,
            token,
            capacity,
            wanted,
        } => tracing::warn!(
            target: "leasehold", %name, %token, capacity, wanted, "capacity differs"
        ),
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
        LeaseEvent::Wanted {
            name,
            token,
            by,
            within,
        } => tracing::debug!(target: "leasehold", %name, %token, by, ?within, "lease wanted"),
        LeaseEvent::Lost {
            name,
            token,
            reason,
        } => tracing::warn!(target: "leasehold", %name, %token, %reason, "lease lost"),
        LeaseEvent::Released { name, token } => {
            tracing::debug!(target: "leasehold", %name, %token, "lease released");
        }
        LeaseEvent::Passed { name, token } => {
            tracing::debug!(target: "leasehold", %name, %token, "lease passed on");
        }
        LeaseEvent::ClockDrift { drift_margin } => {
            tracing::warn!(
                target: "leasehold",
                drift_margin,
                "clock drift detected: the drift margin was widened"
            );
        }
        LeaseEvent::Quarantined { server, remaining } => {
            tracing::warn!(
                target: "leasehold",
                server,
                ?remaining,
                "a server may have forgotten locks: it is in quarantine and does not vote"
            );
        }
        LeaseEvent::Readmitted { server } => {
            tracing::warn!(target: "leasehold", server, "a server votes again");
        }
        // Concerns one slow reader only. The hub creates it, not the engine.
        LeaseEvent::Lagged { .. } => {}
        // An event that the engine has gained since.
        other => tracing::warn!(target: "leasehold", "{other}"),
    }
}
