//! The turns of jobs: their events and counts.

use super::host::{Host, LOCK, Net, TIMEOUT, TTL};
use crate::engine::{Answer, Backlog, Wait};
use crate::error::ErrorKind;
use crate::name::Owner;
use crate::protocol::{LeaseId, Reply};
use crate::tick::Tick;

fn runner(tick: u64, backlog: Option<Backlog>) -> Host {
    let mut host = Host::new();
    let tick = Tick::new(tick).expect("a valid tick");
    host.owner = Owner::runner("runner", tick).expect("a short label");
    host.backlog = backlog;
    host
}

fn complete(host: &mut Host, lease: LeaseId) {
    let call = host.complete(lease);
    assert!(matches!(host.outcome(call), Answer::Release(Ok(()))));
}

/// Catches missed ticks that are emitted before the turn has begun, or again, or not counted.
#[test]
fn a_turn_emits_the_ticks_that_were_missed_before_it() {
    let backlog = Backlog {
        first: 3,
        missed: 4,
        again: true,
    };
    let mut host = runner(7, Some(backlog));
    let lease = host.hold(LOCK).lease;
    host.advance(TTL);
    complete(&mut host, lease);
    let mut told = host.told();
    told.retain(|event| event != "renewed");
    let expected = ["begun 7", "missed 4 from 3", "completed 7"];
    assert_eq!(told[1..4], expected, "{told:?}");
    let stats = &host.counted;
    assert_eq!((stats.ticks_completed, stats.ticks_repeated), (1, 1));
    assert_eq!(stats.ticks_missed, 4);
}

/// Catches a claim of a completed tick that counts as a failure, and asks again until its patience ends.
#[test]
fn a_claim_of_a_completed_tick_gets_nothing_at_once() {
    for wait in [Wait::Never, Wait::Forever] {
        let mut host = runner(7, None);
        host.net = Net::Hold;
        let call = host.acquire(LOCK, wait);
        host.answer_each(&Ok(Reply::Completed));
        assert_eq!(host.outcome(call), &Answer::Acquire(Ok(None)));
        assert_eq!(host.ops(), ["acquire"]);
    }
}

/// Catches an event that says that nothing was missed, and a turn that counts as completed when it is not.
#[test]
fn a_turn_without_a_backlog_emits_and_counts_none() {
    for backlog in [None, Some(Backlog::default())] {
        let mut host = runner(7, backlog);
        let lease = host.hold(LOCK).lease;
        host.release(lease);
        assert!(host.told().iter().all(|event| !event.starts_with("missed")));
        let stats = &host.counted;
        let ticks = (stats.ticks_completed, stats.ticks_repeated);
        assert_eq!((ticks, stats.ticks_missed), ((0, 0), 0));
    }
}

/// Catches a completion that counts as a loss because its first reply was lost, and one that counts although somebody
/// else completed the tick.
#[test]
fn a_tick_that_is_completed_was_completed_by_the_turn_if_a_reply_is_missing() {
    let mut host = runner(7, None);
    let lease = host.hold(LOCK).lease;
    host.net = Net::LoseReplies;
    let call = host.complete(lease);
    host.net = Net::Up;
    host.advance(TIMEOUT * 2);
    assert_eq!(host.count("release"), 2);
    assert_eq!(host.outcome(call), &Answer::Release(Ok(())));

    let mut host = runner(7, None);
    let lease = host.hold(LOCK).lease;
    host.net = Net::Hold;
    let call = host.complete(lease);
    host.answer_each(&Ok(Reply::Completed));
    assert_eq!(host.error(call), ErrorKind::NotHeld);
}
