//! Renewals that the program asks for, and what its events say of the servers that do not renew.

use super::line::hold_at;
use super::world::{Host, LOCK, Net, SOON, TTL, key, ms, quorum};
use crate::engine::{Answer, Wait};
use crate::error::ErrorKind;
use crate::event::LeaseEvent;
use crate::protocol::{Command, ForceRelease};

/// Deletes the lock at this server, and the locker does not hear of it.
fn delete_unheard(world: &mut Host, server: usize) {
    world.deafen(server);
    world.servers[server].delete(&key(LOCK));
}

/// Catches a renewal that fails with the first server that refuses it, and one that waits for servers that
/// cannot make a majority any more.
#[test]
fn a_manual_renewal_is_answered_once_a_majority_decides() {
    let mut world = quorum(1, 3);
    let lease = world.hold(LOCK).lease;
    delete_unheard(&mut world, 0);
    let call = world.renew(lease);
    assert_eq!(world.outcome(call), &Answer::Renew(Ok(())));

    let mut world = quorum(1, 3);
    let lease = world.hold(LOCK).lease;
    for server in [0, 1] {
        delete_unheard(&mut world, server);
    }
    let call = world.renew(lease);
    assert!(world.failure(call).is_not_held());
    assert_eq!(world.answered(call), world.now);
}

#[test]
fn a_canceled_renewal_is_not_answered_and_leaves_the_others() {
    let mut world = quorum(1, 3);
    let lease = world.hold(LOCK).lease;
    world.set_all(0..3, Net::Hold);
    let [canceled, other] = [world.renew(lease), world.renew(lease)];
    world.cancel_of(canceled, lease);
    world.answer_all();
    assert!(world.is_open(canceled));
    assert_eq!(world.outcome(other), &Answer::Renew(Ok(())));
}

/// Catches a warning that comes only with the next renewal although a server has refused, and one that comes
/// while a contender of the same moment still has a server.
#[test]
fn a_bare_majority_is_told_at_once_if_a_server_failed() {
    let mut world = quorum(1, 3);
    world.set_all(0..3, Net::Hold);
    world.acquire(LOCK, Wait::Never);
    world.refuse_next(ErrorKind::Store);
    world.answer_next();
    world.answer_next();
    assert_eq!(world.story(0), ["acquired", "at risk"]);

    let mut world = quorum(1, 3);
    hold_at(&mut world, 2, SOON * 2);
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(SOON);
    world.grant(call);
    assert_eq!(world.story(0), ["acquired", "at risk"]);
    let told: Vec<_> = world.events.iter().map(|told| told.at).collect();
    assert!(told[0] < told[1]);
}

/// Catches a proof that is awaited for ever, during which no risk is told.
#[test]
fn a_risk_is_told_again_after_a_server_has_joined() {
    let mut world = quorum(1, 3);
    for server in [2, 0, 1] {
        world.cut(server);
        world.set(server, Net::LoseRequests);
        if !world.is_held(LOCK) {
            world.hold(LOCK);
        }
        world.advance(TTL / 2);
        world.set(server, Net::Up);
        world.connect(server);
        world.advance(TTL);
    }
    assert_eq!(world.told_times("at risk"), 3);
    assert_eq!(world.left(), (3, 0));
}

/// Catches a deadline that stays when a server that supported it no longer has the lease.
#[test]
fn a_deadline_that_comes_sooner_is_told() {
    let mut world = quorum(1, 3);
    let lease = world.hold(LOCK);
    world.set(2, Net::LoseRequests);
    let call = world.renew_for(lease.lease, TTL * 4);
    assert_eq!(world.outcome(call), &Answer::Renew(Ok(())));
    let later = world.held_until(LOCK);
    world.set(2, Net::Up);
    let (key, token) = (key(LOCK), lease.token);
    world.ask_at(0, Command::ForceRelease(ForceRelease { key, token }));
    world.advance(ms(1));
    let told = world.last_told();
    assert!(matches!(told.event, LeaseEvent::AtRisk { .. }), "{told:?}");
    assert!(
        told.deadline.is_some_and(|sooner| sooner + TTL < later),
        "{told:?}"
    );
}

/// Catches a lease that goes on although it was taken away everywhere, as one server after the other tells.
#[test]
fn a_lease_that_was_taken_away_everywhere_ends() {
    for heard in 0..3 {
        let mut world = quorum(2, 3);
        let lease = world.hold(LOCK);
        for server in (0..3).filter(|server| *server != heard) {
            world.deafen(server);
        }
        world.advance(TTL / 4);
        let call = world.at(1).force_release(LOCK);
        world.advance(ms(1));
        assert!(matches!(
            world.outcome(call),
            Answer::ForceRelease(Ok(Some(_)))
        ));
        world.advance(TTL / 2);
        assert_eq!(world.story(0).last(), Some(&"lost"), "{heard}");
        assert_eq!(world.left(), (0, 0));
        assert!(world.at(1).hold(LOCK).token > lease.token);
    }
}

/// Catches a loss that is told only at the deadline.
#[test]
fn a_loss_is_told_before_the_deadline_of_the_shortest_renewal() {
    let mut world = quorum(1, 3);
    let lease = world.hold(LOCK).lease;
    let call = world.renew_for(lease, TTL / 2);
    assert_eq!(world.outcome(call), &Answer::Renew(Ok(())));
    let deadline = world.held_until(LOCK);
    world.set_all(0..3, Net::LoseRequests);
    world.advance_to(deadline);
    let lost = world.last_told();
    assert!(matches!(lost.event, LeaseEvent::Lost { .. }), "{lost:?}");
    assert!(lost.at + ms(10) <= deadline, "{lost:?} {deadline:?}");
}

#[test]
fn a_later_request_to_yield_is_told_only_if_it_leaves_much_less_time() {
    let mut world = quorum(2, 3);
    world.hold(LOCK);
    let told = |world: &Host| {
        let wanted = |told: &&crate::testing::Told| matches!(told.event, LeaseEvent::Wanted { .. });
        world.lockers[0].events.iter().filter(wanted).count()
    };
    let mut ask = |within| {
        let call = world.at(1).request_yield(LOCK, "deploy", within);
        world.advance(ms(1));
        assert!(matches!(world.outcome(call), Answer::RequestYield(_)));
        told(&world)
    };
    assert_eq!(ask(TTL), 1);
    assert_eq!(ask(TTL / 4), 2);
    world.advance(TTL);
    let call = world.at(1).request_yield(LOCK, "again", TTL);
    world.advance(TTL);
    assert!(matches!(world.outcome(call), Answer::RequestYield(Ok(_))));
    assert_eq!(told(&world), 3);
}

/// Catches a lease that is granted when it has all but ended.
#[test]
fn a_majority_that_grants_too_late_grants_nothing() {
    let mut world = quorum(1, 3);
    world.ttl = ms(1_000);
    world.set_all(0..3, Net::Hold);
    let call = world.acquire(LOCK, Wait::Forever);
    let granted: Vec<_> = (0..3).map(|_| world.take_reply()).collect();
    world.now = world.now + ms(950);
    for (sent, reply) in granted {
        world.reply(&sent, Ok(reply));
    }
    assert!(world.is_open(call), "{:?}", world.outcome(call));
}
