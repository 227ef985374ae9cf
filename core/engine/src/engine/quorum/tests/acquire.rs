//! Acquiring a lock, with and without success.

use super::world::{LOCK, LONGEST, Net, SOON, TIMEOUT, TTL, fresh, ms, quorum};
use crate::engine::{Answer, LockId, Wait};
use crate::error::ErrorKind;

/// After this time, a server of the line that does not answer is skipped, if all others answered at once.
const PASSED_OVER: std::time::Duration = std::time::Duration::from_millis(10);

#[test]
fn all_that_are_asked_give_the_lock_in_one_round() {
    for servers in [3, 5, 7] {
        let mut world = quorum(1, servers);
        let before = world.sent();
        let lease = world.hold(LOCK);
        assert_eq!(world.sent() - before, servers, "one operation each");
        assert_eq!(world.left(), (servers, 0));
        assert_eq!(world.story(0), ["acquired"]);
        let call = world.release(lease.lease);
        assert_eq!(world.outcome(call), &Answer::Release(Ok(())));
        assert_eq!(world.sent() - before, 2 * servers);
        assert_eq!(
            (world.left(), world.story(0)),
            ((0, 0), vec!["acquired", "released"])
        );
        assert!(world.engine.is_idle());
    }
}

/// Catches a wait for all answers, or a second round, when the servers' clocks differ by a usual amount.
#[test]
fn a_majority_is_enough_without_a_further_round() {
    for (servers, frozen) in [(3, 1), (5, 2), (7, 3)] {
        for wait in [Wait::Never, Wait::Forever] {
            let mut world = quorum(2, servers);
            for host in [0, 1, 0] {
                let (before, at) = (world.sent(), world.now);
                world.set_all(servers - frozen..servers, Net::Frozen);
                let call = world.at(host).acquire(LOCK, wait);
                if world.is_open(call) {
                    // A server of the line is frozen, and soon skipped.
                    world.advance(PASSED_OVER);
                }
                let lease = world.grant(call);
                assert!(world.now <= at + PASSED_OVER);
                assert_eq!(world.sent() - before, servers);
                world.set_all(servers - frozen..servers, Net::Up);
                assert_eq!(world.left(), (servers, 0));
                let tokens = world.last_tokens();
                assert_eq!(tokens, vec![Some(lease.token.get()); servers]);
                world.at(host).release(lease.lease);
                assert_eq!(world.left(), (0, 0));
            }
        }
    }
}

/// Catches the token of only one server, which a later majority may not know.
#[test]
fn tokens_grow_whichever_majority_gives_them() {
    let mut world = quorum(2, 5);
    world.ahead = vec![9_000_000, 0, 5_000_000, 1_000_000, 3_000_000];
    let mut last = 0;
    for round in 0..40 {
        let away = [round % 5, (round * 3 + 1) % 5];
        world.set_all(away, Net::LoseRequests);
        let call = world.at(round % 2).acquire(LOCK, Wait::Never);
        world.advance(SOON);
        let lease = world.grant(call);
        assert!(
            lease.token.get() > last,
            "{} after {last}, without {away:?}",
            lease.token
        );
        last = lease.token.get();
        let known = world.last_tokens();
        let at_least = known
            .iter()
            .flatten()
            .filter(|token| **token >= last)
            .count();
        assert!(at_least >= 3, "{known:?} of {last}");
        world.at(round % 2).release(lease.lease);
        world.advance(TTL);
        world.set_all(away, Net::Up);
        world.advance(TTL);
    }
}

#[test]
fn one_of_two_lockers_that_ask_gets_the_lock() {
    let mut world = quorum(2, 3);
    world.hold(LOCK);
    let call = world.at(1).acquire(LOCK, Wait::Never);
    assert_eq!(world.outcome(call), &Answer::Acquire(Ok(None)));
    assert_eq!(world.left(), (3, 0));
}

/// Catches a minority that counts as enough, or that is kept.
#[test]
fn without_a_majority_nothing_is_kept() {
    let mut world = quorum(1, 5);
    for at in [0, 2, 4] {
        world.cut(at);
        world.set(at, Net::LoseRequests);
    }
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(TIMEOUT + SOON);
    let error = world.failure(call);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(
        text.contains("3 of 5 servers are missing, and 3 are needed"),
        "{text}"
    );
    for server in ["server 1:", "server 3:", "server 5:"] {
        assert!(text.contains(server), "{text}");
    }
    world.advance(SOON);
    assert_eq!(world.left(), (0, 0));
}

/// Catches a late grant that nobody gives back.
#[test]
fn late_grants_of_frozen_servers_are_given_back() {
    let mut world = quorum(1, 3);
    world.set_all([1, 2], Net::Frozen);
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(TIMEOUT * 2);
    assert_eq!(world.error(call), ErrorKind::Unavailable);
    world.set_all([1, 2], Net::Up);
    world.advance(SOON);
    assert_eq!(world.left(), (0, 0));
    world.hold(LOCK);
}

/// Catches a call that waits for a server that is not needed for a majority.
#[test]
fn no_call_waits_for_a_frozen_minority() {
    let mut world = quorum(1, 5);
    world.set_all([3, 4], Net::Frozen);
    let before = world.now;
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(SOON);
    let lease = world.grant(call);
    assert!(lease.deadline <= before + TTL + SOON);
    world.set_all([3, 4], Net::Up);
    world.advance(TTL / 2);
    assert_eq!(world.left(), (5, 0), "the late servers joined the lease");
    world.release(lease.lease);
    assert_eq!(world.left(), (0, 0));
}

/// Catches a lease that begins when it is all but over, and is lost at once.
#[test]
fn a_lease_whose_answers_are_late_does_not_begin() {
    let mut world = quorum(1, 3);
    (world.ttl, world.net) = (ms(100), Net::Hold);
    world.acquire(LOCK, Wait::Never);
    let sent: Vec<_> = world.pending.drain(..).collect();
    let replies: Vec<_> = sent.iter().map(|sent| world.execute(sent)).collect();
    world.advance(ms(98));
    for (sent, reply) in sent.iter().zip(replies) {
        world.reply(sent, Ok(reply));
    }
    assert_eq!(world.story(0), [""; 0]);
}

#[test]
fn a_canceled_acquisition_leaves_nothing() {
    let mut world = quorum(1, 3);
    world.set_all(0..3, Net::Frozen);
    let call = world.acquire(LOCK, Wait::Forever);
    world.cancel(call);
    world.set_all(0..3, Net::Up);
    world.advance(SOON);
    assert_eq!((world.left(), world.is_open(call)), ((0, 0), true));
    assert!(world.engine.is_idle());
}

/// Catches a locker that waits for servers that it knows to be disconnected.
#[test]
fn a_new_locker_without_a_majority_is_told_at_once_and_why() {
    let mut world = fresh(1, 3);
    for server in [0, 2] {
        world.cut(server);
    }
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(ms(200));
    let error = world.failure(call);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let says = error.to_string();
    let why = "server 1: the cable was pulled";
    assert!(says.contains(why) && says.contains("server 3"), "{says}");
}

/// Catches a lock that is said to be out of reach because a minority is, although a majority said that somebody
/// has it.
#[test]
fn a_lock_that_a_majority_refuses_is_taken_and_not_out_of_reach() {
    for (servers, away) in [(3, 1), (5, 2), (7, 3)] {
        let mut world = quorum(2, servers);
        world.hold(LOCK);
        world.set_all(0..servers, Net::Hold);
        let call = world.at(1).acquire(LOCK, Wait::Never);
        for _ in 0..away {
            world.refuse_next(ErrorKind::Store);
        }
        world.answer_all();
        let taken = Answer::Acquire(Ok(None));
        assert_eq!(world.outcome(call), &taken, "{away} of {servers}");
    }
}

/// Catches a new attempt that gives up before the servers have answered, because they were silent before.
#[test]
fn servers_that_were_silent_are_asked_again() {
    let mut world = quorum(1, 3);
    world.set_all(0..3, Net::LoseRequests);
    let call = world.acquire(LOCK, Wait::Never);
    world.advance(SOON * 4);
    assert_eq!(world.error(call), ErrorKind::Unavailable);
    world.set_all(0..3, Net::Up);
    let again = world.acquire(LOCK, Wait::Never);
    world.advance(SOON);
    world.grant(again);
}

/// Catches counters that are raised later than necessary, and sooner than a slow answer may make it unnecessary.
#[test]
fn counters_are_raised_once_no_answer_is_due() {
    let mut world = quorum(1, 3);
    world.cut(2);
    world.ahead[2] += 3_600_000_000;
    world.connect(2);
    world.set(0, Net::Hold);
    let call = world.acquire(LOCK, Wait::Never);
    assert!(world.is_open(call) && !world.ops().contains(&"renew"));
    world.refuse_next(ErrorKind::Store);
    assert_eq!(world.ops().last(), Some(&"renew"));
    world.grant(call);
}

/// Catches an error of a server that may have forgotten locks that does not say how long it does not vote.
#[test]
fn an_error_says_when_a_server_that_forgot_votes_again() {
    let mut world = quorum(1, 3);
    world.hold(LOCK);
    for server in [0, 1] {
        world.servers[server].flush();
    }
    // The first attempt finds out.
    let [_, call] = [(); 2].map(|()| {
        let call = world.acquire(LockId(2), Wait::Never);
        world.advance(ms(200));
        call
    });
    let says = world.failure(call).to_string();
    // With the margin for its clock.
    let left = LONGEST.as_secs() + 1;
    let why = format!("came back 0 s ago, may have forgotten locks, and votes again in {left} s");
    assert!(says.contains(&why), "{says}");
}
