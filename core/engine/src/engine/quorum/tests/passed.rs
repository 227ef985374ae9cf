//! Passing a lease on, which a quorum refuses.

use super::world::{LOCK, quorum};
use crate::error::ErrorKind;
use crate::testing::{TTL, name_of};
use crate::ticket::Passed;

/// Catches a lease that is lost by the attempt.
#[test]
fn a_quorum_neither_passes_a_lease_on_nor_accepts_one() {
    let mut world = quorum(2, 3);
    let lease = world.hold(LOCK);
    let call = world.pass(lease.lease);
    assert_eq!(world.error(call), ErrorKind::Unsupported);
    assert!(world.is_held(LOCK));
    let passed = Passed {
        name: name_of(LOCK),
        lease: lease.lease,
        token: lease.token,
        ttl: TTL,
        ends: None,
    };
    let call = world.at(1).accept(LOCK, &passed);
    assert_eq!(world.error(call), ErrorKind::Unsupported);
    assert!(world.is_held(LOCK));
}
