//! What a server says of itself, before it is used.

use std::sync::OnceLock;

use crate::error::Error;
use crate::finding::Finding;
use crate::protocol;

/// Whether it is one that can keep locks, who it is, and what endangers leases there.
pub(super) fn check(info: &str, run_id: &OnceLock<String>) -> Result<Vec<Finding>, Error> {
    protocol::check_server(info)?;
    if let Some(id) = protocol::info_field(info, "run_id") {
        run_id.get_or_init(|| id.to_owned());
    }
    let findings = Finding::all(info);
    for finding in &findings {
        tracing::warn!(target: "leasehold", "{finding}");
    }
    Ok(findings)
}

/// Whether it serves some slots of a cluster.
pub(super) fn is_of_cluster(info: &str) -> bool {
    // Valkey calls it otherwise.
    let modes = ["redis_mode", "server_mode"].map(|name| protocol::info_field(info, name));
    modes.contains(&Some("cluster"))
}

/// It does not say, and may be used all the same.
pub(super) fn is_withheld() -> Vec<Finding> {
    tracing::warn!(target: "leasehold", "the server's version could not be checked");
    Vec::new()
}
