//! Locks that count only once their copies exist.

use std::time::Duration;

use super::host::{Host, LEAD, LOCK, Net, TIMEOUT, TTL, ms};
use super::line::in_line;
use crate::engine::{Answer, LockId, Wait};
use crate::error::{Error, ErrorKind};
use crate::protocol::Durability;

const OTHER: LockId = LockId(2);

/// Returns a host whose locks need two replicas, and get them.
fn host() -> Host {
    let mut host = Host::new();
    host.durability = Some(Durability {
        replicas: 2,
        timeout: 500,
        ..Durability::NONE
    });
    host.copies = Ok([1, 2]);
    host
}

/// Catches a lock that counts with too few copies, and one that is kept in that case.
#[test]
fn too_few_copies_are_reported_and_the_lock_is_given_back() {
    let mut host = host();
    host.hold(LOCK);
    host.copies = Ok([1, 1]);
    for wait in [Wait::Never, Wait::Forever, Wait::Until(host.now + TTL)] {
        host.forget();
        let call = host.acquire(OTHER, wait);
        let error = host.failure(call);
        assert_eq!(error.kind(), ErrorKind::NotReplicated);
        let said = "the lock is not durable: 1 of 2 replicas acknowledged it in time";
        assert_eq!(error.to_string(), said);
        assert_eq!(host.ops(), ["acquire", "release"]);
        assert!(host.told().is_empty() && !host.is_taken(OTHER));
    }
    assert!(host.is_held(LOCK));
}

/// Catches an attempt that is given up before its copies can have been made.
#[test]
fn an_acquisition_is_awaited_for_as_long_as_its_copies_may_take() {
    let mut host = host();
    host.net = Net::Hold;
    host.acquire(LOCK, Wait::Forever);
    let sent = host.take();
    assert_eq!(sent.give_up.since(sent.at), TIMEOUT + ms(500));
}

/// Catches a request for the wrong kind of copy, and replies about disk and replicas that are swapped.
#[test]
fn each_kind_of_copy_is_requested_and_weighed() {
    let replicas = Durability {
        replicas: 1,
        timeout: 10,
        ..Durability::NONE
    };
    let disk = Durability {
        replicas: 0,
        fsynced: true,
        timeout: 70,
    };
    let both = Durability {
        replicas: 1,
        ..disk
    };
    assert_eq!(replicas.command(), ["WAIT", "1", "10"]);
    let short = replicas.within(Duration::ZERO);
    assert_eq!(short.command()[2], "1", "0 would wait forever");
    assert_eq!(disk.command(), ["WAITAOF", "1", "0", "70"]);
    assert_eq!(both.command(), ["WAITAOF", "1", "1", "70"]);
    let cases: [(_, &[u64], _); 9] = [
        (replicas, &[1], Ok(())),
        (replicas, &[7], Ok(())),
        (replicas, &[0], Err(ErrorKind::NotReplicated)),
        (replicas, &[], Err(ErrorKind::Store)),
        (disk, &[1, 0], Ok(())),
        (disk, &[0, 9], Err(ErrorKind::NotReplicated)),
        (disk, &[1], Err(ErrorKind::Store)),
        (both, &[1, 1], Ok(())),
        (both, &[1, 0], Err(ErrorKind::NotReplicated)),
    ];
    for (durability, said, expected) in cases {
        let mut host = Host::new();
        host.durability = Some(durability);
        host.net = Net::Hold;
        let call = host.acquire(LOCK, Wait::Never);
        let sent = host.take();
        assert_eq!(sent.durability, Some(durability));
        let now = host.server_now();
        let reply = host.servers[0].execute(now, &sent.batch);
        let copies = durability.copies(said);
        let weighed = copies.and_then(|copies| durability.weigh(reply, Ok(copies)));
        host.reply(&sent, weighed);
        let kind = host.outcome(call).error().map(Error::kind);
        assert_eq!(kind, expected.err(), "{durability:?} {said:?}");
    }
}

/// Catches a lock that stays taken because the server refuses to wait.
#[test]
fn a_refusal_to_wait_is_reported_and_the_lock_is_given_back() {
    let refusals = [
        (ErrorKind::Store, ErrorKind::Unsupported),
        (ErrorKind::Auth, ErrorKind::Auth),
    ];
    for (kind, told) in refusals {
        let mut host = host();
        host.copies = Err(Error::new(kind, "there is no such command"));
        let call = host.acquire(LOCK, Wait::Forever);
        assert_eq!(host.error(call), told);
        assert!(!host.is_taken(LOCK));
    }
}

/// Catches an acquisition that is given up because its copies are not known, and a retry with a new lease ID.
#[test]
fn an_acquisition_with_an_unknown_outcome_is_retried() {
    let mut host = host();
    host.net = Net::Hold;
    let call = host.acquire(LOCK, Wait::Forever);
    let sent = host.take();
    host.execute(&sent);
    let lost = Error::new(ErrorKind::Unavailable, "the connection was replaced");
    host.reply(&sent, Err(lost));
    host.net = Net::Up;
    host.advance(ms(100));
    assert_eq!(host.grant(call).token.get(), 1, "the tenure is the same");
}

/// Catches batches that wait for each other, or that hold up unrelated operations.
#[test]
fn one_batch_waits_for_copies_at_a_time_and_the_rest_leaves_without_it() {
    let mut host = host();
    host.net = Net::Hold;
    let first = host.acquire(LOCK, Wait::Never);
    let calls = [3, 4, 5].map(|lock| host.acquire(LockId(lock), Wait::Never));
    host.durability = None;
    let plain = host.acquire(OTHER, Wait::Never);
    let sizes = |host: &Host| {
        let pending = host.pending.iter();
        let sizes = pending.map(|sent| (sent.batch.len(), sent.durability.is_some()));
        sizes.collect::<Vec<_>>()
    };
    assert_eq!(sizes(&host), [(1, true), (1, false)]);
    host.answer_next();
    host.grant(first);
    assert_eq!(sizes(&host), [(1, false), (3, true)]);
    host.answer_all();
    host.grant(plain);
    for call in calls {
        host.grant(call);
    }
}

/// Catches a batch that mixes locks which need different kinds of copies.
#[test]
fn operations_that_need_different_copies_leave_apart() {
    let mut host = host();
    host.net = Net::Hold;
    host.acquire(LOCK, Wait::Never);
    host.acquire(OTHER, Wait::Never);
    let one = host.durability.map(|two| Durability { replicas: 1, ..two });
    host.durability = one;
    let third = host.acquire(LockId(3), Wait::Never);
    host.answer_next();
    host.answer_next();
    let sent = host.take();
    assert_eq!((sent.batch.len(), sent.durability), (1, one));
    host.answer(&sent);
    host.grant(third);
}

/// Catches a connection that is replaced because replies behind a `WAIT` were late.
#[test]
fn late_replies_behind_a_wait_do_not_make_the_connection_suspect() {
    let mut host = host();
    let late = |host: &mut Host| {
        host.durability = None;
        for _ in 0..5 {
            let call = host.acquire(OTHER, Wait::Until(host.now + ms(20)));
            host.advance(ms(30));
            assert_eq!(host.error(call), ErrorKind::Timeout);
        }
    };
    host.net = Net::Hold;
    host.acquire(LOCK, Wait::Forever);
    late(&mut host);
    assert!(host.suspected.is_empty(), "{:?}", host.suspected);
    host.answer_all();
    late(&mut host);
    assert!(!host.suspected.is_empty(), "now the timeouts count");
}

/// Catches a lock that counts because of a push, although no replica has heard of it yet.
#[test]
fn a_durable_lock_that_is_handed_over_is_requested() {
    let mut host = host();
    let call = in_line(&mut host);
    host.net = Net::Hold;
    host.stranger_releases(LOCK);
    assert!(host.is_open(call));
    assert_eq!(host.ops(), ["acquire"]);
    assert!(
        host.log
            .last()
            .is_some_and(|sent| sent.durability.is_some())
    );
    host.answer_next();
    assert_eq!(host.grant(call).token.get(), 2);
    let until = host.held_until(LOCK);
    assert!(
        until + ms(100) >= host.now + TTL,
        "the lease has its full time to live"
    );

    let mut host = self::host();
    let call = in_line(&mut host);
    host.copies = Ok([1, 0]);
    host.stranger_releases(LOCK);
    assert_eq!(host.error(call), ErrorKind::NotReplicated);
    assert!(!host.is_taken(LOCK), "the lock was given back");
}

/// Catches a deadline that is later than the expiry that the copies have.
#[test]
fn a_renewal_with_too_few_copies_does_not_extend() {
    for by_hand in [false, true] {
        let mut host = host();
        let lease = host.hold(LOCK);
        host.copies = Ok([1, 1]);
        host.forget();
        if by_hand {
            let call = host.renew(lease.lease);
            assert_eq!(host.error(call), ErrorKind::NotReplicated);
        }
        host.advance(TTL / 2);
        assert!(host.told().iter().all(|told| told == "at risk"));
        assert!(host.count("renew") > 1);
        assert_eq!(host.held_until(LOCK), lease.deadline);
        host.copies = Ok([1, 2]);
        host.advance(ms(2_000));
        assert_eq!(host.told_last(), "renewed");
        let until = host.held_until(LOCK);
        assert!(until > lease.deadline);
        host.copies = Ok([1, 0]);
        host.advance(TTL);
        let told = host.told();
        assert_eq!(told.last().map(String::as_str), Some("lost: expired"));
        assert_eq!(host.last_told().at, until - LEAD);
        assert!(!host.is_taken(LOCK), "the lock was given back");
    }
}

/// Catches leases that spend most of their time waiting for copies.
#[test]
fn a_lease_waits_for_copies_for_a_third_of_its_time_at_most() {
    let mut host = host();
    host.ttl = ms(300);
    host.hold(LOCK);
    host.advance(ms(150));
    let timeouts = host.log.iter().filter_map(|sent| sent.durability);
    let timeouts: Vec<_> = timeouts.map(|durability| durability.timeout).collect();
    assert!(timeouts.len() > 1);
    assert!(timeouts.iter().all(|timeout| *timeout == 100));
}

/// Catches a release or a query that waits for copies without a need.
#[test]
fn only_acquisitions_and_renewals_wait_for_copies() {
    let mut host = host();
    let lease = host.hold(LOCK);
    host.renew(lease.lease);
    host.inspect(LOCK);
    let call = host.release(lease.lease);
    assert_eq!(host.outcome(call), &Answer::Release(Ok(())));
    assert_eq!(host.ops(), ["acquire", "renew", "inspect", "release"]);
    let waits = host.log.iter().map(|sent| sent.durability.is_some());
    assert_eq!(waits.collect::<Vec<_>>(), [true, true, false, false]);
}
