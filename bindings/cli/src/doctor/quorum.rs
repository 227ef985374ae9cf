//! Reports what a server of a quorum stores about the quorum.

use std::time::Duration;

use leasehold::protocol::LockKey;

use super::probe::Probe;
use super::{Found, Level, probe_name};
use crate::times::show;

/// The longest time to live that the server keeps, if it is one of a quorum.
pub(super) async fn look(probe: &Probe, namespace: &str) -> Option<Found> {
    let key = LockKey::new(namespace, &probe_name()).ok()?.mark();
    let kept = probe.ask(&["HGET", key.lock(), "longest"]).await.ok()?;
    let longest = show(Duration::from_millis(kept.as_u64()?));
    let what = format!("it is one of a quorum, with leases of up to {longest} (longest_ttl)");
    let so = format!(
        "after a restart it does not vote for {longest}, and lockers with another longest_ttl are refused"
    );
    let todo = format!(
        "to change it, stop all lockers, wait for {longest}, run DEL {} at every server, and start them anew",
        key.lock()
    );
    let found = Found::new("quorum", Level::Note, what);
    Some(found.so(so).todo(todo))
}
