//! What differs for clusters, whose servers have some of the keys and a clock of their own each.

use super::host::{Host, LOCK, Net, ms};
use crate::engine::servers::MAX_ALONE_IN_FLIGHT;
use crate::engine::{Input, LockId, ServerId, Wait};
use crate::protocol::LockKey;

const OTHER: LockId = LockId(2);

/// Catches a batch whose keys are on two servers: it would be refused as a whole.
#[test]
fn operations_leave_one_by_one() {
    for clustered in [true, false] {
        let mut host = Host::new();
        host.engine.single_mut().env.cx.settings.clustered = clustered;
        host.hold(LOCK);
        host.hold(OTHER);
        host.forget();
        // Everything is asked again at once after a reconnect.
        host.input(Input::CONNECTED);
        host.advance(ms(100));
        let most = host.log.iter().map(|sent| sent.batch.len()).max();
        assert_eq!(most, Some(if clustered { 1 } else { 2 }));
    }
}

/// Catches a deadline that is told by another server's clock.
#[test]
fn a_lock_that_was_handed_over_is_asked_for_again() {
    for clustered in [true, false] {
        let mut host = Host::new();
        host.engine.single_mut().env.cx.settings.clustered = clustered;
        host.stranger_acquires(LOCK, ms(60_000));
        host.acquire(LOCK, Wait::Forever);
        host.forget();
        host.stranger_releases(LOCK);
        host.advance(ms(50));
        let asked = usize::from(clustered);
        assert_eq!(host.count("acquire"), asked);
        assert!(host.is_held(LOCK));
    }
}

/// Catches a host with a thousand locks that sends a cluster a thousand calls at once.
#[test]
fn only_so_many_operations_are_under_way() {
    let mut host = Host::new();
    host.engine.single_mut().env.cx.settings.clustered = true;
    host.net = Net::Hold;
    for lock in 1..=MAX_ALONE_IN_FLIGHT + 5 {
        host.acquire(LockId(lock as u64), Wait::Forever);
    }
    assert_eq!(host.pending.len(), MAX_ALONE_IN_FLIGHT);
    for _ in 0..MAX_ALONE_IN_FLIGHT + 5 {
        host.answer_next();
    }
    assert!(host.pending.is_empty());
    assert!(host.is_held(LOCK) && host.is_held(LockId(MAX_ALONE_IN_FLIGHT as u64 + 5)));
}

/// Catches what waits for a server that does not have its keys any more; and what is lost sight of
/// on its way to another, so that a lock is given back that nobody can have.
#[test]
fn what_has_not_left_goes_where_its_keys_are() {
    for given_up in [false, true] {
        let mut host = Host::unconnected();
        host.engine.single_mut().env.cx.settings.clustered = true;
        host.net = Net::Hold;
        let call = host.acquire(LOCK, Wait::Forever);
        let (slots, server) = (0..=LockKey::SLOTS - 1, ServerId(3));
        host.input(Input::Slots { slots, server });
        let probes = host.log.iter().map(|sent| sent.batch.len());
        assert_eq!(probes.collect::<Vec<_>>(), [1, 1], "of both clocks");
        if given_up {
            host.cancel(call);
        }
        let probe = host.pending.pop_back().expect("the second probe");
        let (request, result) = (probe.request, Ok(host.execute(&probe)));
        host.input(Input::Reply {
            server,
            request,
            result,
        });
        assert_eq!(host.count("acquire"), usize::from(!given_up));
        assert_eq!(host.count("release"), 0);
    }
}
