//! Inspecting locks, and force-releasing those of others.

use super::host::{Host, LOCK, Net, PATIENCE, Pushes, SOON, TIMEOUT, TTL, ms};
use crate::engine::{Answer, HolderInfo, Input, Inspection};
use crate::error::ErrorKind;
use crate::protocol::Reply;
use crate::token::FencingToken;

fn inspection(answer: &Answer) -> &Inspection {
    match answer {
        Answer::Inspect(Ok(inspection)) => inspection,
        other => panic!("{other:?} is no inspection"),
    }
}

#[test]
fn inspecting_tells_the_holder_the_token_and_the_time_that_is_left() {
    let mut host = Host::new();
    let call = host.inspect(LOCK);
    let free = inspection(host.outcome(call));
    assert_eq!((free.holder.as_ref(), free.last_token), (None, None));

    let grant = host.hold(LOCK);
    host.sleep(ms(4_000));
    let call = host.inspect(LOCK);
    let HolderInfo {
        token,
        remaining,
        owner,
    } = inspection(host.outcome(call))
        .holder
        .clone()
        .expect("the lock is held");
    assert_eq!((token, owner.label()), (grant.token, "host"));
    assert_eq!(remaining, ms(26_000));

    host.release(grant.lease);
    let call = host.inspect(LOCK);
    let free = inspection(host.outcome(call));
    assert_eq!(
        (free.holder.as_ref(), free.last_token),
        (None, Some(grant.token))
    );
}

#[test]
fn force_releasing_frees_a_strangers_lock_and_names_its_holder() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    let call = host.force_release(LOCK);
    let Answer::ForceRelease(Ok(Some(holder))) = host.outcome(call) else {
        panic!("{:?} names no holder", host.outcome(call));
    };
    assert_eq!(holder.owner.label(), "stranger");
    assert!(!host.is_taken(LOCK));
    let again = host.force_release(LOCK);
    assert_eq!(host.outcome(again), &Answer::ForceRelease(Ok(None)));
}

#[test]
fn force_releasing_a_token_spares_a_holder_with_another() {
    let mut host = Host::new();
    let Reply::Held(grant) = host.stranger_acquires(LOCK, TTL) else {
        panic!("it is free")
    };
    let mine = grant.token;
    let other = FencingToken::new(mine.get() + 1).expect("it is small");
    let spared = host.force_release_token(LOCK, Some(other));
    assert_eq!(host.outcome(spared), &Answer::ForceRelease(Ok(None)));
    assert!(host.is_taken(LOCK));
    let freed = host.force_release_token(LOCK, Some(mine));
    assert!(matches!(
        host.outcome(freed),
        Answer::ForceRelease(Ok(Some(holder))) if holder.token == mine
    ));
    assert!(!host.is_taken(LOCK));
}

#[test]
fn ones_own_lease_is_lost_at_once_after_a_force_release() {
    let (mut host, _) = Host::holding();
    let start = host.now;
    host.force_release(LOCK);
    assert_eq!(host.told(), ["acquired 1", "lost: revoked"]);
    assert_eq!(host.last_told().at, start);
    assert!(!host.is_held(LOCK) && host.engine.is_idle());
}

/// The push was not heard, so the next renewal finds the loss.
#[test]
fn ones_own_lease_is_lost_at_the_next_renewal_after_a_force_release_that_was_not_heard() {
    for subscribes in [true, false] {
        let mut host = Host::new();
        (host.subscribes, host.pushes) = (subscribes, Pushes::Drop);
        host.hold(LOCK);
        host.force_release(LOCK);
        host.advance(TTL / 3);
        assert_eq!(host.told(), ["acquired 1", "lost: deleted"]);
    }
}

#[test]
fn a_query_without_an_answer_is_repeated_until_the_patience_ends() {
    let mut host = Host::on(Net::LoseRequests);
    let start = host.now;
    let lost = host.inspect(LOCK);
    host.advance(TIMEOUT);
    host.net = Net::Up;
    host.advance(SOON);
    assert!(inspection(host.outcome(lost)).holder.is_none());
    host.net = Net::LoseRequests;
    let begin = host.now;
    let silent = host.inspect(LOCK);
    host.advance(PATIENCE * 2);
    assert_eq!(host.error(silent), ErrorKind::Timeout);
    assert_eq!(host.answered(silent), begin + PATIENCE);
    assert!(start < begin && host.engine.is_idle());
    assert_eq!(host.wake, None);
}

/// Catches a forced release that gives up although a retry is safe: it ends no other tenure.
#[test]
fn a_force_release_without_an_answer_is_repeated_until_the_patience_ends() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    let stranger = host.token_of(LOCK);
    // The first inspection, the first forced release and its first answer are lost.
    host.net = Net::LoseRequests;
    let call = host.force_release(LOCK);
    host.advance(TIMEOUT);
    host.net = Net::LoseReplies;
    host.advance(SOON);
    host.net = Net::Up;
    host.advance(TIMEOUT * 2);
    let Answer::ForceRelease(Ok(Some(holder))) = host.outcome(call) else {
        panic!("{:?} names no holder", host.outcome(call));
    };
    assert_eq!(Some(holder.token), stranger);
    assert!(!host.is_taken(LOCK) && host.engine.is_idle());

    host.net = Net::LoseRequests;
    let start = host.now;
    let silent = host.force_release(LOCK);
    host.advance(PATIENCE * 2);
    assert_eq!(host.error(silent), ErrorKind::Timeout);
    assert_eq!(host.answered(silent), start + PATIENCE);
}

/// Catches a forced release that ends whichever tenure holds the lock by then: the second holder would be
/// thrown out instead of the first.
#[test]
fn a_force_release_that_is_repeated_or_runs_twice_spares_the_next_holder() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    let first = host.token_of(LOCK);
    host.net = Net::Hold;
    let call = host.force_release(LOCK);
    host.answer_next();
    // The forced release frees the lock, its answer is lost, and another client acquires.
    let frees = host.take();
    host.execute(&frees);
    host.stranger_acquires(LOCK, TTL);
    let second = host.token_of(LOCK);
    assert_ne!(first, second);
    // A proxy delivers it once more, and the engine retries it.
    host.execute(&frees);
    host.advance(TIMEOUT + SOON);
    host.answer_all();
    let Answer::ForceRelease(Ok(Some(holder))) = host.outcome(call) else {
        panic!("{:?} names no holder", host.outcome(call));
    };
    assert_eq!(Some(holder.token), first);
    assert_eq!(host.token_of(LOCK), second);
}

#[test]
fn without_a_connection_a_query_waits_for_one() {
    let mut host = Host::new();
    host.disconnect();
    let answered = host.inspect(LOCK);
    host.advance(PATIENCE / 2);
    host.connect(0);
    assert!(host.outcome(answered).error().is_none());
    host.disconnect();
    let start = host.now;
    let failed = host.inspect(LOCK);
    host.advance(PATIENCE * 2);
    assert_eq!(host.error(failed), ErrorKind::Unavailable);
    assert_eq!(host.answered(failed), start + PATIENCE);
}

#[test]
fn a_query_that_cannot_be_answered_fails_at_once() {
    let mut host = Host::on(Net::Hold);
    for kind in [ErrorKind::WrongType, ErrorKind::Auth, ErrorKind::Store] {
        let call = host.inspect(LOCK);
        host.refuse_next(kind);
        assert_eq!(host.error(call), kind);
    }
}

#[test]
fn a_query_that_came_late_is_repeated() {
    let mut host = Host::new();
    host.epoch += 60_000_000;
    let call = host.force_release(LOCK);
    assert!(host.is_open(call));
    host.advance(SOON);
    assert_eq!(host.outcome(call), &Answer::ForceRelease(Ok(None)));
}

#[test]
fn a_canceled_query_is_not_answered() {
    let mut host = Host::on(Net::Hold);
    let call = host.inspect(LOCK);
    host.input(Input::Cancel { call, of: None });
    assert!(host.engine.is_idle());
    host.answer_all();
    assert!(host.is_open(call));
    assert_eq!(host.wake, None);
}

/// The store answered that it is loading. After the call's end, no request may follow.
#[test]
fn when_the_patience_ends_the_last_error_is_reported_and_nothing_more_is_sent() {
    let mut host = Host::on(Net::Hold);
    let start = host.now;
    let call = host.inspect(LOCK);
    while host.is_open(call) {
        if !host.pending.is_empty() {
            host.fail_next(ErrorKind::Unavailable);
        }
        let next = host.wake.expect("the engine has a timer");
        host.advance_to(next);
    }
    assert_eq!(host.answered(call), start + PATIENCE);
    assert_eq!(host.error(call), ErrorKind::Unavailable);
    assert!(host.log.iter().all(|sent| sent.at < start + PATIENCE));
}

/// Catches queries that are counted against the locks of the locker, which has none.
#[test]
fn several_queries_need_no_lock() {
    let mut host = Host::on(Net::Hold);
    let calls = [(); 3].map(|()| host.inspect(LOCK));
    host.answer_all();
    assert!(
        calls
            .iter()
            .all(|call| inspection(host.outcome(*call)).holder.is_none())
    );
}
