//! Shared names: permits with slots, readers and writers.

use std::sync::Arc;
use std::time::Duration;

use super::host::{Host, LOCK, Net, TTL, ms};
use crate::engine::{Acquired, Answer, CallId, LockId, Wait};
use crate::error::ErrorKind;
use crate::name::Owner;
use crate::share::{Share, Sharing};

const ONE: LockId = LockId(11);
const TWO: LockId = LockId(12);
const THREE: LockId = LockId(13);

/// Asks for a part of `LOCK` through this handle.
fn ask(host: &mut Host, handle: LockId, share: Share, wait: Wait) -> CallId {
    let mut spec = host.spec(LOCK);
    let options = Arc::make_mut(&mut spec.options);
    options.owner = Owner::sharing("me", share).expect("a short label is valid");
    options.reentrant = false;
    host.acquire_spec(handle, spec, wait)
}

fn slots(weight: u32, capacity: u32) -> Share {
    Share::slots(weight, capacity).expect("a share within the bounds")
}

fn take(host: &mut Host, handle: LockId, share: Share) -> Acquired {
    let call = ask(host, handle, share, Wait::Never);
    host.grant(call)
}

fn slots_of(lease: &Acquired) -> &[u16] {
    &lease.admission.as_ref().expect("a permit").slots
}

fn resize(host: &mut Host, sharing: Sharing, capacity: u32) -> Answer {
    let call = host.resize(LOCK, sharing, capacity);
    host.outcome(call).clone()
}

#[test]
fn permits_have_the_lowest_free_slots_and_growing_tokens() {
    let mut host = Host::new();
    let first = take(&mut host, ONE, slots(1, 3));
    let second = take(&mut host, TWO, slots(2, 3));
    assert_eq!(
        (slots_of(&first), slots_of(&second)),
        (&[0][..], &[1, 2][..])
    );
    let full = ask(&mut host, THREE, slots(1, 3), Wait::Never);
    assert_eq!(host.outcome(full), &Answer::Acquire(Ok(None)));
    host.release(first.lease);
    let third = take(&mut host, THREE, slots(1, 3));
    assert_eq!(slots_of(&third), [0]);
    assert!(third.token > second.token && second.token > first.token);
    assert_eq!(host.count("acquire") + host.count("release"), 0);
}

/// Catches a release whose reply does not tell the next permit to its own client, which would ask for it.
#[test]
fn a_waiter_of_the_same_client_gets_the_permit_with_its_slots() {
    let mut host = Host::new();
    let first = take(&mut host, ONE, slots(1, 1));
    let waiting = ask(&mut host, TWO, slots(1, 1), Wait::Forever);
    assert!(host.is_open(waiting));
    assert_eq!(host.told_last(), "waiting 1");
    host.release(first.lease);
    let second = host.grant(waiting);
    assert_eq!(slots_of(&second), [0]);
    assert!(second.token > first.token);
    assert_eq!(host.count("admit"), 2);
    host.advance(TTL * 3);
    assert!(host.is_held(TWO));
}

#[test]
fn a_permit_is_renewed_and_released_by_its_lease_alone() {
    let mut host = Host::new();
    let (first, second) = (
        take(&mut host, ONE, slots(1, 2)),
        take(&mut host, TWO, slots(1, 2)),
    );
    host.advance(TTL * 3);
    assert!(host.is_held(ONE) && host.is_held(TWO));
    assert!(host.count("extend") >= 4 && host.count("renew") == 0);
    let released = host.release(first.lease);
    assert_eq!(host.outcome(released), &Answer::Release(Ok(())));
    assert!(host.is_held(TWO) && !host.is_held(ONE));
    host.advance(TTL * 3);
    assert!(host.is_held(TWO));
    host.release(second.lease);
    assert_eq!(host.count("vacate"), 2);
}

/// Catches a reader that is let in ahead of a waiting writer.
#[test]
fn a_writer_waits_for_readers_and_later_readers_for_the_writer() {
    let mut host = Host::new();
    let reader = take(&mut host, ONE, Share::reader());
    let writer = ask(&mut host, TWO, Share::writer(), Wait::Forever);
    let late = ask(&mut host, THREE, Share::reader(), Wait::Never);
    assert_eq!(host.outcome(late), &Answer::Acquire(Ok(None)));
    let late = ask(&mut host, THREE, Share::reader(), Wait::Forever);
    host.release(reader.lease);
    let writer = host.grant(writer);
    assert!(host.is_open(late));
    host.release(writer.lease);
    let generation = host.grant(late).admission.expect("a permit").generation;
    assert_eq!(generation, Some(writer.token));
}

#[test]
fn the_capacity_of_the_store_is_in_force_and_an_event_says_so() {
    let mut host = Host::new();
    let first = take(&mut host, ONE, slots(1, 3));
    host.forget();
    let second = take(&mut host, TWO, slots(1, 5));
    let admission = second.admission.clone().expect("a permit");
    assert_eq!((admission.capacity, admission.epoch), (3, 1));
    assert_eq!(host.told(), ["acquired 2", "capacity 3, not 5"]);
    let heavy = ask(&mut host, THREE, slots(4, 5), Wait::Forever);
    assert_eq!(host.error(heavy), ErrorKind::Config);
    let text = host.failure(heavy).to_string();
    assert!(text.contains('4') && text.contains('3'), "{text}");
    host.strict = true;
    let strict = ask(&mut host, THREE, slots(1, 5), Wait::Forever);
    assert_eq!(host.error(strict), ErrorKind::Config);
    host.strict = false;
    // The refused permit is given back.
    assert_eq!(slots_of(&take(&mut host, THREE, slots(1, 3))), [2]);
    assert!(first.token < second.token);
}

/// Catches a waiter that takes a pushed permit without learning its slots.
#[test]
fn a_resize_admits_waiters_and_sends_away_those_that_never_fit() {
    let mut host = Host::new();
    take(&mut host, ONE, slots(1, 2));
    let heavy = ask(&mut host, TWO, slots(2, 2), Wait::Forever);
    assert!(host.is_open(heavy));
    assert_eq!(resize(&mut host, Sharing::Slots, 1), Answer::Resize(Ok(2)));
    assert_eq!(host.error(heavy), ErrorKind::Config);
    let light = ask(&mut host, THREE, slots(1, 2), Wait::Forever);
    assert!(host.is_open(light));
    assert_eq!(resize(&mut host, Sharing::Slots, 2), Answer::Resize(Ok(3)));
    assert_eq!(slots_of(&host.grant(light)), [1]);
    for (sharing, capacity) in [(Sharing::Slots, 0), (Sharing::Access, 5)] {
        let Answer::Resize(Err(error)) = resize(&mut host, sharing, capacity) else {
            panic!("a bad capacity is refused");
        };
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}

#[test]
fn a_forced_release_of_one_of_several_holders_names_its_token() {
    let mut host = Host::new();
    let (first, second) = (
        take(&mut host, ONE, slots(1, 2)),
        take(&mut host, TWO, slots(1, 2)),
    );
    let refused = host.force_release(LOCK);
    assert_eq!(host.error(refused), ErrorKind::Config);
    let text = host.failure(refused).to_string();
    assert!(text.contains("2 holders"), "{text}");
    let mut free = |token| {
        let call = host.force_release_token(LOCK, token);
        match host.outcome(call) {
            Answer::ForceRelease(Ok(freed)) => freed.as_ref().map(|freed| freed.token),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(free(Some(first.token)), Some(first.token));
    assert_eq!(free(Some(first.token)), None);
    assert_eq!(free(None), Some(second.token));
    assert!(!host.is_held(ONE) && !host.is_held(TWO));
}

#[test]
fn the_holders_of_a_shared_name_cannot_be_asked_to_yield() {
    let mut host = Host::new();
    let lease = take(&mut host, ONE, slots(1, 2));
    let call = host.request_yield(LOCK, "deploy", TTL);
    assert_eq!(host.error(call), ErrorKind::Unsupported);
    assert!(host.is_held(ONE) && lease.admission.is_some());
}

#[test]
fn a_name_has_one_use() {
    let mut host = Host::new();
    take(&mut host, ONE, slots(1, 2));
    for share in [Share::units(1, 2).expect("a share"), Share::reader()] {
        let other = ask(&mut host, TWO, share, Wait::Forever);
        assert_eq!(host.error(other), ErrorKind::WrongType);
        let text = host.failure(other).to_string();
        assert!(text.contains("used for a semaphore"), "{text}");
    }
    let lock = host.acquire(LOCK, Wait::Forever);
    assert_eq!(host.error(lock), ErrorKind::WrongType);
}

#[test]
fn a_line_of_bounded_length_rejects_further_waiters_at_once() {
    let mut host = Host::new();
    host.max_line = Some(1);
    let first = take(&mut host, ONE, slots(1, 1));
    let waiting = ask(&mut host, TWO, slots(1, 1), Wait::Forever);
    let rejected = ask(&mut host, THREE, slots(1, 1), Wait::Forever);
    assert!(host.is_open(waiting));
    assert_eq!(host.error(rejected), ErrorKind::Overloaded);
    host.release(first.lease);
    let second = host.grant(waiting);
    host.release(second.lease);
    // Nothing of the rejected call is left.
    take(&mut host, THREE, slots(1, 1));
}

#[test]
fn a_canceled_waiter_lets_the_next_one_in() {
    let mut host = Host::new();
    take(&mut host, ONE, slots(1, 2));
    let heavy = ask(&mut host, LOCK, slots(2, 2), Wait::Forever);
    let light = ask(&mut host, THREE, slots(1, 2), Wait::Forever);
    assert!(host.is_open(light), "nobody overtakes");
    host.cancel(heavy);
    assert_eq!(slots_of(&host.grant(light)), [1]);
}

#[test]
fn a_crashed_holder_frees_its_permit_and_a_live_one_does_not_keep_it() {
    let mut host = Host::new();
    let live = take(&mut host, ONE, Share::reader());
    host.stranger_reads(LOCK, 0, Duration::from_secs(2));
    let writer = ask(&mut host, TWO, Share::writer(), Wait::Forever);
    host.release(live.lease);
    assert!(host.is_open(writer));
    host.advance(ms(2_200));
    assert!(host.grant(writer).token > live.token);
}

/// Catches a writer that waits for a heartbeat per hundred dead readers although nobody holds the name. A living reader
/// keeps the set of holders from expiring.
#[test]
fn a_crowd_of_dead_readers_does_not_keep_a_writer_out() {
    let mut host = Host::new();
    let live = take(&mut host, ONE, Share::reader());
    for number in 0..350 {
        host.stranger_reads(LOCK, number, Duration::from_secs(1));
    }
    host.advance(ms(1_100));
    host.release(live.lease);
    let writer = ask(&mut host, TWO, Share::writer(), Wait::Forever);
    host.advance(ms(20));
    assert!(host.grant(writer).token > live.token);
}

#[test]
fn options_of_locks_that_shared_names_do_not_have_are_refused() {
    let mut host = Host::new();
    host.at_least = Some(ms(100));
    let call = ask(&mut host, ONE, slots(1, 2), Wait::Never);
    assert_eq!(host.error(call), ErrorKind::Config);
    assert!(host.failure(call).to_string().contains("at_least"));
}

/// Catches a downgrade that lets another writer in between, one that leaves readers waiting, and a new token for it.
#[test]
fn a_writer_becomes_a_reader_without_letting_go() {
    let mut host = Host::new();
    let writer = take(&mut host, ONE, Share::writer());
    let reader = ask(&mut host, TWO, Share::reader(), Wait::Forever);
    let next = ask(&mut host, THREE, Share::writer(), Wait::Forever);
    let done = host.raise(writer.lease, writer.token);
    assert_eq!(host.outcome(done), &Answer::Renew(Ok(())));
    let reader = host.grant(reader);
    let generation = reader.admission.as_ref().expect("a permit").generation;
    assert_eq!(generation, Some(writer.token));
    host.advance(TTL);
    assert!(host.is_held(ONE) && host.is_open(next));
    host.release(reader.lease);
    assert!(host.is_open(next), "the first writer still reads");
    host.release(writer.lease);
    assert!(host.grant(next).token > reader.token);
}

/// Catches a downgrade that is forgotten with its call, and a repeated one that frees what others hold.
#[test]
fn a_downgrade_whose_reply_is_lost_is_repeated_and_done_once() {
    for net in [Net::LoseRequests, Net::LoseReplies] {
        let mut host = Host::new();
        let writer = take(&mut host, ONE, Share::writer());
        host.net = net;
        let call = host.raise(writer.lease, writer.token);
        host.advance(ms(2_100));
        assert_eq!(host.error(call), ErrorKind::Timeout);
        host.net = Net::Up;
        host.advance(TTL);
        take(&mut host, TWO, Share::reader());
        assert!(host.is_held(ONE) && host.is_held(TWO), "{net:?}");
        let second = ask(&mut host, THREE, Share::writer(), Wait::Never);
        assert_eq!(host.outcome(second), &Answer::Acquire(Ok(None)));
    }
}

/// Catches a release that counts as confirmed because its handle got another permit: the first permit would block
/// its slot until it expires.
#[test]
fn another_permit_of_the_handle_confirms_no_release() {
    let mut host = Host::new();
    let first = take(&mut host, ONE, slots(1, 2));
    host.net = Net::LoseRequests;
    host.release(first.lease);
    host.net = Net::Up;
    let second = take(&mut host, ONE, slots(1, 2));
    assert_eq!(slots_of(&second), [1]);
    host.advance(ms(3_000));
    assert_eq!(slots_of(&take(&mut host, TWO, slots(1, 2))), [0]);
}
