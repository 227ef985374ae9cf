//! Leases that are taken from holders without their notice: none goes on after a later lease.

use super::world::{Host, LOCK, Net, SOON, TIMEOUT, TTL, key, ms, quorum};
use crate::engine::{CallId, Wait};
use crate::name::Owner;
use crate::protocol::LeaseId;

/// Returns a world in which two of three servers gave host 0 the lock, and the first server lost it without
/// host 0's notice.
fn freed_at_the_first() -> Host {
    let mut world = quorum(2, 3);
    world.cut(1);
    hold_soon(&mut world, 0);
    world.cut(0);
    world.deafen(0);
    world.servers[0].delete(&key(LOCK));
    world
}

/// Acquires the lock, with time to raise counters, which some acquisitions need.
fn hold_soon(world: &mut Host, host: usize) -> LeaseId {
    let call = world.at(host).acquire(LOCK, Wait::Never);
    world.advance(SOON);
    world.grant(call).lease
}

/// Acquires the lock for an owner that reclaims its leases.
fn reclaim(world: &mut Host, host: usize, wait: Wait) -> CallId {
    let owner = Owner::reclaimable("job").expect("a short label is valid");
    world.lockers[host].owner = owner;
    world.at(host).acquire(LOCK, wait)
}

/// Catches a lease that goes on after a later one because it counts a server that joined late.
#[test]
fn a_server_that_joins_late_does_not_replace_one_that_was_lost() {
    let mut world = freed_at_the_first();
    let later = hold_soon(&mut world, 1);
    world.at(1).release(later);
    world.connect(1);
    world.advance(TTL / 2);
    assert_eq!(world.left(), (2, 0), "the holder has asked server 2 again");
    world.advance(TTL);
    assert_eq!(world.story(0).last(), Some(&"lost"));
    world.advance(SOON);
    assert_eq!(world.left(), (0, 0));
}

/// Catches a lease that ends although a majority always had it.
#[test]
fn a_server_that_joins_late_counts_once_the_others_have_answered() {
    let mut world = quorum(1, 3);
    world.cut(1);
    hold_soon(&mut world, 0);
    world.connect(1);
    world.advance(TTL / 2);
    assert_eq!(world.left(), (3, 0));
    world.cut(0);
    world.advance(TTL * 3);
    assert!(!world.story(0).contains(&"lost"), "{:?}", world.story(0));
}

/// Catches an owner that begins with a token below that of its own later lease, which it does not know.
#[test]
fn an_owner_that_reclaims_confirms_the_grants_before_it_begins() {
    let mut world = quorum(2, 3);
    world.ahead = vec![10_000_000, 0, 0];
    for server in [1, 2] {
        world.cut(server);
    }
    let call = reclaim(&mut world, 0, Wait::Forever);
    assert_eq!(world.left(), (1, 0), "the claim keeps its turn");
    world.deafen(0);
    world.cut(0);
    world.at(1).cut(2);
    let other = reclaim(&mut world, 1, Wait::Never);
    world.advance(SOON);
    let other = world.grant(other);
    world.connect(2);
    world.advance(TIMEOUT);
    assert!(
        world.is_open(call),
        "the first server's lease is no longer its own"
    );
    world.connect(1);
    world.advance(TTL);
    assert!(world.grant(call).token > other.token);
}

/// Catches an owner's token that is not above the counter of a member that has the lease: that member may have
/// given the lower ones to a later lease of the owner since.
#[test]
fn an_owner_that_reclaims_gets_the_greatest_token_of_the_members() {
    let mut world = quorum(1, 5);
    let call = reclaim(&mut world, 0, Wait::Never);
    world.advance(SOON);
    let token = world.grant(call).token.get();
    assert_eq!(world.last_tokens(), [Some(token); 5]);
}

/// Catches a proof by an answer to a renewal that left before the late member gave the lease.
#[test]
fn a_renewal_from_before_a_server_joined_proves_nothing() {
    let mut world = quorum(2, 3);
    world.ttl = TTL / 10;
    world.cut(1);
    hold_soon(&mut world, 0);
    world.set(0, Net::Hold);
    while world.pending.is_empty() {
        world.advance(ms(10));
    }
    let (renewal, reply) = world.take_reply();
    world.set(0, Net::Up);
    world.deafen(0);
    world.servers[0].delete(&key(LOCK));
    let later = world.at(1).acquire(LOCK, Wait::Never);
    world.advance(ms(400));
    let later = world.grant(later).lease;
    world.at(1).release(later);
    world.at(0).connect(1);
    world.advance(ms(300));
    assert_eq!(world.left(), (2, 0), "the holder has joined server 2");
    world.reply(&renewal, Ok(reply));
    world.advance(TTL);
    assert_eq!(world.story(0).last(), Some(&"lost"));
}
