//! Nothing grows without a bound, and nothing spins.

use super::host::{FAR, Host, LOCK, Net, PATIENCE, Sent, TTL, kind, ms};
use crate::engine::servers::{MAX_BATCH, MAX_BATCH_BYTES, MAX_IN_FLIGHT};
use crate::engine::{LockId, Wait};
use crate::error::ErrorKind;
use crate::name::Name;
use crate::time::Timestamp;

/// Returns the operations that leave when the store finally answers.
fn first_batch(host: &mut Host) -> Vec<&'static str> {
    host.net = Net::Hold;
    host.forget();
    host.connect(0);
    host.answer_next();
    assert!(host.log.len() <= 2, "a probe, and one batch");
    host.ops()
}

#[test]
fn without_the_servers_clock_attempts_do_not_pile_up() {
    let mut host = Host::connecting(Net::LoseRequests);
    let until = Wait::Until(host.now + TTL * 20);
    host.acquire(LOCK, until);
    host.inspect(LOCK);
    host.advance(TTL * 10);
    assert!(host.log.iter().all(|sent| sent.batch.is_empty()));
    assert_eq!(first_batch(&mut host), ["acquire"]);
}

#[test]
fn the_outbox_keeps_no_operation_that_was_given_up() {
    let mut host = Host::connecting(Net::Hold);
    host.acquire(LOCK, Wait::Until(host.now + TTL * 20));
    for _ in 0..20 {
        host.advance(PATIENCE);
        host.inspect(LOCK);
    }
    let probe = host.pending.pop_back().expect("a probe is in flight");
    host.forget();
    host.answer(&probe);
    let mut ops = host.ops();
    ops.sort_unstable();
    assert!(
        ops.len() <= 2,
        "one attempt of each call that still waits: {ops:?}"
    );
}

/// Each acquisition leaves a release, which ends when its lock would have expired.
#[test]
fn acquisitions_that_come_and_go_leave_a_bounded_number_of_releases() {
    let mut host = Host::connecting(Net::LoseRequests);
    host.ttl = ms(1_000);
    for _ in 0..200 {
        let call = host.acquire(LOCK, Wait::Forever);
        host.advance(ms(100));
        host.cancel(call);
        host.advance(ms(100));
    }
    let ops = first_batch(&mut host);
    assert!(ops.iter().all(|op| *op == "release"));
    assert!(ops.len() <= 20, "{} of 200 are left", ops.len());
    host.net = Net::LoseRequests;
    host.advance(TTL);
    assert!(host.engine.is_idle());
}

/// An operation that was never sent cannot have acted, so there is nothing to give back.
#[test]
fn an_acquisition_that_was_never_sent_needs_no_release() {
    let mut host = Host::connecting(Net::LoseRequests);
    for _ in 0..5 {
        let call = host.acquire(LOCK, Wait::Forever);
        host.cancel(call);
    }
    assert_eq!(first_batch(&mut host), [""; 0]);
    assert!(host.engine.is_idle());
}

#[test]
fn a_batch_is_split_when_many_operations_wait_for_the_servers_clock() {
    let mut host = Host::connecting(Net::Hold);
    for id in 0..1_000 {
        host.acquire(LockId(id), Wait::Forever);
    }
    host.net = Net::Up;
    host.answer_next();
    assert!(host.log.iter().all(|sent| sent.batch.len() <= 128));
    assert_eq!(host.ops().len(), 1_000);
    assert_eq!(host.told().len(), 1_000);
}

/// `advance` checks at each tick that the engine then asks for a later one.
#[test]
fn whatever_the_network_does_time_alone_makes_progress() {
    for net in [Net::Up, Net::Hold, Net::LoseRequests, Net::LoseReplies] {
        for fixed in [false, true] {
            let mut host = Host::new();
            host.stranger_acquires(LockId(4), ms(7_000));
            host.fixed = fixed;
            host.hold(LOCK);
            let released = host.hold(LockId(2)).lease;
            host.net = net;
            host.release(released);
            host.acquire(LockId(3), Wait::Until(host.now + ms(3_333)));
            host.acquire(LockId(4), Wait::Forever);
            host.inspect(LOCK);
            host.forget();
            host.advance(TTL * 4);
            let pace = host.log.len();
            assert!(pace < 400, "{pace} requests in two minutes with {net:?}");
        }
    }
}

#[test]
fn a_wait_that_is_over_already_ends_with_the_next_tick() {
    let mut host = Host::new();
    host.stranger_acquires(LOCK, TTL);
    let call = host.acquire(LOCK, Wait::Until(Timestamp::from_nanos(0)));
    host.tick();
    assert!(!host.is_open(call));
    host.advance(TTL * 2);
    assert!(host.engine.is_idle());
}

/// While a few batches are in flight, new operations wait and then leave together.
#[test]
fn under_load_operations_leave_together() {
    let mut host = Host::new();
    host.subscribes = false;
    host.net = Net::Hold;
    for lock in 1..=MAX_IN_FLIGHT + 2 * MAX_BATCH + 40 {
        host.acquire(LockId(lock as u64), Wait::Forever);
    }
    let first = vec![1; MAX_IN_FLIGHT];
    assert_eq!(host.sizes(), first, "the first batches leave at once");
    host.sleep(FAR);
    for expected in [MAX_BATCH, MAX_BATCH, 40] {
        host.answer_next();
        assert_eq!(host.sizes().last(), Some(&expected));
    }
}

#[test]
fn a_batch_is_bounded_in_bytes_too() {
    let mut host = Host::on(Net::Hold);
    for lock in 1..=MAX_IN_FLIGHT + MAX_BATCH {
        let name = Name::new(format!("{lock:0512}")).expect("512 bytes are a name");
        let spec = host.spec_of(&name);
        host.acquire_spec(LockId(lock as u64), spec, Wait::Forever);
    }
    host.answer_next();
    let last = host.pending.back().expect("the next batch left");
    assert!(last.batch.len() < MAX_BATCH);
    let bytes: usize = last.batch.iter().map(|op| op.command.size()).sum();
    assert!(
        bytes <= MAX_BATCH_BYTES && bytes > MAX_BATCH_BYTES / 2,
        "{bytes} bytes"
    );
}

/// Catches an operation that is forgotten behind others.
#[test]
fn an_operation_behind_others_is_given_up_in_time() {
    let mut host = Host::on(Net::Hold);
    for lock in 1..=MAX_IN_FLIGHT + 6 {
        host.acquire(LockId(lock as u64), Wait::Forever);
    }
    let call = host.acquire(LockId(1_000), Wait::Until(host.now + ms(100)));
    host.advance(ms(100));
    assert_eq!(host.error(call), ErrorKind::Timeout);
    assert_eq!(
        host.pending.len(),
        MAX_IN_FLIGHT,
        "an operation that was never sent needs no release"
    );
}

/// Catches answers that never arrive and block all other operations.
#[test]
fn a_host_that_never_answers_blocks_others_for_one_attempt_at_most() {
    let (mut host, _) = Host::holding();
    host.net = Net::Hold;
    for lock in 2..2 + MAX_IN_FLIGHT as u64 {
        host.acquire(LockId(lock), Wait::Until(host.now + ms(300)));
    }
    let unanswered = host.pending.len();
    let call = host.inspect(LOCK);
    assert_eq!(
        host.pending.len(),
        unanswered,
        "too many batches are in flight"
    );
    host.advance(ms(300));
    let inspects =
        |sent: &&Sent| matches!(sent.batch.last(), Some(op) if kind(&op.command) == "inspect");
    let next = host
        .pending
        .iter()
        .find(inspects)
        .expect("the operation left")
        .clone();
    host.answer(&next);
    assert!(!host.is_open(call));
}
