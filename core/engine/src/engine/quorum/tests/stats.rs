//! Statistics of a quorum.

use super::world::{Host, LOCK, Net, SOON, TTL, fresh, quorum};
use crate::engine::{Stats, Wait};

fn stats(world: &Host) -> Stats {
    world.engine.counts().into()
}

/// Catches a lock that is counted once for each server, and calls that are counted for only one server.
#[test]
fn a_lock_is_counted_once_and_calls_for_each_server() {
    let mut world = fresh(2, 3);
    let lease = world.hold(LOCK).lease;
    let began = stats(&world);
    assert_eq!((began.held, began.acquired, began.waiting), (1, 1, 0));
    assert_eq!(began.waiting_times.count, 1);
    assert!(
        began.script_calls >= 6,
        "a clock and a lock at each server: {began:?}"
    );
    assert!(began.operations >= 3);
    world.advance(TTL);
    let renewed = stats(&world);
    let told = world.told_times("renewed");
    assert_eq!(renewed.renewals, told as u64);
    assert!(renewed.operations >= began.operations + 3 * renewed.renewals);
    assert_eq!(renewed.round_trips.count, renewed.script_calls);
    world.release(lease);
    world.advance(SOON);
    let over = stats(&world);
    assert_eq!((over.held, over.released, over.lost.total()), (0, 1, 0));
    assert_eq!(over.holding_times.count, 1);
}

#[test]
fn a_refusal_or_loss_by_a_majority_is_counted_once() {
    let mut world = quorum(2, 3);
    let stranger = world.at(1).hold(LOCK).lease;
    world.acquire(LOCK, Wait::Never);
    world.advance(SOON);
    assert_eq!((stats(&world).busy, stats(&world).failed), (1, 0));
    world.at(1).release(stranger);
    world.advance(SOON);
    world.hold(LOCK);
    world.set_all(0..3, Net::LoseRequests);
    world.advance(TTL * 2);
    let lost = stats(&world);
    assert_eq!((lost.held, lost.lost.expired, lost.lost.total()), (0, 1, 1));
    assert!(lost.timeouts >= 3, "one at each server: {lost:?}");
    let told = world.told_times("at risk");
    assert_eq!(lost.renewal_failures, told as u64);
}
