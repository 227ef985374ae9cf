//! Leases that are taken from holders without their notice: none goes on after a later lease.

use super::line::hold_at;
use super::world::{Host, LOCK, Net, SOON, Sent, TIMEOUT, TTL, key, ms, place, quorum};
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

/// Sets the clocks of these servers forward, and lets all lockers learn of it.
fn set_ahead(world: &mut Host, servers: &[usize]) {
    for &server in servers {
        world.ahead[server] += 60_000_000;
        for locker in 0..world.lockers.len() {
            world.at(locker).cut(server);
            world.at(locker).connect(server);
        }
    }
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

/// Catches an owner that counts a grant from before a majority had answered, although the member's answer
/// came after that: the member may have gone on to a later lease of the owner since.
#[test]
fn an_owner_that_reclaims_confirms_a_grant_whose_answer_comes_last() {
    let mut world = quorum(2, 3);
    set_ahead(&mut world, &[2]);
    world.set(2, Net::Hold);
    let call = reclaim(&mut world, 0, Wait::Forever);
    let (granted, reply) = world.take_reply();
    world.set(2, Net::Up);
    world.deafen(1);
    world.deafen(2);
    world.at(1).cut(0);
    let other = reclaim(&mut world, 1, Wait::Never);
    world.advance(ms(2));
    let other = world.grant(other);
    world.reply(&granted, Ok(reply));
    world.advance(TTL);
    assert!(world.grant(call).token > other.token);
}

/// Catches an owner's lease that goes on after a later one because it counts a server that joined late: the
/// owner's later lease may have taken that server over since.
#[test]
fn a_server_that_joins_an_owners_lease_late_proves_nothing_by_its_token() {
    let mut world = quorum(2, 3);
    set_ahead(&mut world, &[0, 1]);
    hold_at(&mut world, 2, TTL / 2);
    let call = reclaim(&mut world, 0, Wait::Never);
    world.advance(TTL / 2 + ms(100));
    world.grant(call);
    world.set(2, Net::Hold);
    while world.pending.is_empty() {
        world.advance(ms(10));
    }
    let (granted, reply) = world.take_reply();
    world.set(2, Net::Up);
    world.deafen(0);
    world.deafen(2);
    world.cut(0);
    world.at(1).cut(1);
    let other = reclaim(&mut world, 1, Wait::Never);
    world.advance(ms(100));
    world.grant(other);
    world.reply(&granted, Ok(reply));
    world.cut(2);
    world.connect(0);
    world.advance(SOON);
    assert_eq!(world.story(0).last(), Some(&"lost"));
}

/// Catches a proof by the answers to a round that began before the late member gave the lease.
#[test]
fn a_round_from_before_a_server_joined_proves_nothing() {
    let mut world = quorum(2, 5);
    world.ttl = TTL / 5;
    world.cut(3);
    world.cut(4);
    world.at(1).cut(3);
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(ms(400));
    world.grant(call);
    world.set_all([0, 1, 2, 4], Net::Hold);
    world.connect(3);
    world.connect(4);
    world.advance(ms(700));
    let asked = world.take();
    let round: Vec<_> = (0..3).map(|_| world.take_reply()).collect();
    world.set_all([0, 1, 2, 4], Net::Up);
    for server in [0, 1] {
        world.deafen(server);
        world.servers[server].delete(&key(LOCK));
    }
    let later = world.at(1).acquire(LOCK, Wait::Never);
    world.advance(ms(400));
    let later = world.grant(later).lease;
    world.at(1).release(later);
    world.answer(&asked);
    assert_eq!(world.left(), (3, 0), "the last server has joined");
    for (sent, reply) in round {
        world.reply(&sent, Ok(reply));
    }
    world.advance(TTL);
    assert_eq!(world.story(0).last(), Some(&"lost"));
}

/// Takes the next pending batch of this host to one of these servers.
fn take_from(world: &mut Host, host: usize, servers: &[usize]) -> Option<Sent> {
    let is_it = |sent: &Sent| sent.locker == host && servers.contains(&place(sent.server));
    let at = world.pending.iter().position(is_it)?;
    world.pending.remove(at)
}

/// Answers all batches of this host to these servers, and those that follow.
fn answer_to(world: &mut Host, host: usize, servers: &[usize]) {
    while let Some(sent) = take_from(world, host, servers) {
        world.answer(&sent);
    }
}

/// Catches two holders: an owner's attempt counts a server that raised its counter, lost the lock to the owner's later
/// attempt, and gave a majority only together with a server whose answer came late.
#[test]
fn a_counter_that_was_raised_before_a_majority_answered_is_raised_again() {
    // The late server is not the one that decides who is first in line, and its clock is behind.
    let (kept, lost, late) = (2, 1, 0);
    let mut world = quorum(2, 3);
    (0..3).for_each(|server| world.deafen(server));
    world.set_all(0..3, Net::Hold);
    let early = reclaim(&mut world, 0, Wait::Never);
    let delayed = take_from(&mut world, 0, &[late]).expect("it was asked");
    let answer = world.execute(&delayed);
    answer_to(&mut world, 0, &[kept, lost]);
    // Both are asked to raise their counters, because the third one does not answer.
    world.advance(ms(1));
    answer_to(&mut world, 0, &[kept]);
    world.servers[lost].delete(&key(LOCK));
    answer_to(&mut world, 0, &[lost]);
    assert!(world.is_open(early));
    let later = reclaim(&mut world, 1, Wait::Never);
    for _ in 0..5 {
        answer_to(&mut world, 1, &[kept, lost]);
        world.advance(ms(1));
    }
    world.grant(later);
    world.reply(&delayed, Ok(answer));
    answer_to(&mut world, 0, &[0, 1, 2]);
    assert!(world.at(1).is_held(LOCK) && !world.is_held(LOCK));
}
