//! An owner takes its lock back from its earlier process.

use super::host::{Host, LOCK, Net, SOON, TIMEOUT, TTL, key, ms, stranger};
use crate::engine::Wait;
use crate::error::ErrorKind;
use crate::name::Owner;
use crate::protocol::{Acquire, Claim, ClientId, Command, Reclaim, Reply};

/// Returns a host whose owner may reclaim its locks.
fn job() -> Host {
    let mut host = Host::new();
    host.owner = Owner::reclaimable("job-7").expect("a short owner is valid");
    host
}

/// An acquisition by the same owner at another client.
fn former(host: &Host, number: u128, waits: bool) -> Command {
    let claim = Claim {
        owner: host.owner.clone(),
        client: ClientId(97),
        ..stranger(number)
    };
    Command::Acquire(Acquire {
        key: key(LOCK),
        claim,
        waits,
        reclaims: Reclaim::Never,
    })
}

#[test]
fn an_owner_takes_over_the_tenure_that_it_was_told_of() {
    for wait in [Wait::Never, Wait::Forever] {
        let mut host = job();
        host.ask(former(&host, 1, false));
        let old = host.token_of(LOCK).expect("the lock is held");
        let call = host.acquire(LOCK, wait);
        assert!(host.grant(call).token > old);
        assert_eq!(host.ops(), ["acquire", "acquire"]);
    }
}

/// Catches a late attempt that reclaims: the first attempt is stuck, the second acquires and releases, and
/// another client of the same owner has the lock when the first arrives.
#[test]
fn a_late_attempt_takes_nothing_over() {
    let mut host = job();
    host.net = Net::Hold;
    let call = host.acquire(LOCK, Wait::Forever);
    let stuck = host.take();
    host.disconnect();
    host.net = Net::Up;
    host.connect(0);
    host.advance(SOON);
    let lease = host.grant(call).lease;
    host.release(lease);
    host.ask(former(&host, 1, false));
    let newer = host.token_of(LOCK);
    host.execute(&stuck);
    assert_eq!(host.token_of(LOCK), newer);
    assert!(
        stuck.at + TIMEOUT > host.now,
        "the stuck attempt was not too late"
    );
}

/// Catches a queued claim that takes the lock from its own owner, whose turn came first.
#[test]
fn a_claim_that_first_found_a_stranger_waits_behind_its_own_owner() {
    let mut host = job();
    host.stranger_acquires(LOCK, TTL);
    host.ask(former(&host, 1, true));
    let call = host.acquire(LOCK, Wait::Forever);
    host.stranger_releases(LOCK);
    let first = host.token_of(LOCK);
    // It asks at its heartbeat, while the grant that it did not hear still lasts.
    host.advance(ms(5_500));
    assert!(host.ops().len() > 1, "the waiter asked again");
    assert!(host.is_open(call));
    assert_eq!(host.token_of(LOCK), first);
}

/// Catches a takeover from whichever tenure holds the lock by then, and a claim that is lost between the two
/// requests.
#[test]
fn a_tenure_that_ended_meanwhile_is_not_replaced_by_the_next() {
    let mut host = job();
    host.ask(former(&host, 1, false));
    host.net = Net::Hold;
    let call = host.acquire(LOCK, Wait::Forever);
    host.answer_next();
    let named = host.take();
    // Another client of the owner takes over first.
    let old = host.token_of(LOCK).expect("the lock is held");
    let Command::Acquire(rival) = former(&host, 2, false) else {
        unreachable!("it acquires");
    };
    let reclaims = Reclaim::From(old);
    let claim = Claim {
        client: ClientId(98),
        ..rival.claim
    };
    host.ask(Command::Acquire(Acquire {
        claim,
        reclaims,
        ..rival
    }));
    let newer = host.token_of(LOCK);
    let reply = host.execute(&named);
    assert!(matches!(reply.replies[..], [Ok(Reply::Busy { .. })]));
    host.reply(&named, Ok(reply));
    host.net = Net::Up;
    host.advance(TTL / 2);
    assert_eq!((host.token_of(LOCK), host.is_open(call)), (newer, true));
}

/// Catches an engine that keeps asking as fast as it is answered.
#[test]
fn a_server_that_repeats_its_offer_is_not_trusted() {
    let mut host = job();
    host.ask(former(&host, 1, false));
    host.net = Net::Hold;
    let call = host.acquire(LOCK, Wait::Never);
    let (sent, offer) = host.take_reply();
    host.reply(&sent, Ok(offer.clone()));
    let again = host.take();
    host.reply(&again, Ok(offer));
    assert_eq!(host.error(call), ErrorKind::Store);
    assert_eq!(host.ops(), ["acquire", "acquire", "release"]);
}
