//! An owner takes its lock back from its former self.

use super::host::{Host, LOCK, Net, SOON, TIMEOUT, TTL, key, ms, stranger};
use crate::engine::Wait;
use crate::error::ErrorKind;
use crate::name::Owner;
use crate::protocol::{Acquire, Claim, ClientId, Command, Reclaim, Reply};

/// A host whose owner may take its locks back.
fn job() -> Host {
    let mut host = Host::new();
    host.owner = Owner::reclaimable("job-7").expect("a short owner is valid");
    host
}

/// The same owner at another client, by one acquisition of so many.
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
        let old = host.token_of(LOCK).expect("it is held");
        let call = host.acquire(LOCK, wait);
        assert!(host.grant(call).token > old);
        assert_eq!(host.ops(), ["acquire", "acquire"]);
    }
}

/// Catches a ghost that reclaims: the first attempt is stuck, the second acquires and releases, and
/// another client of the same owner has the lock when the first arrives.
#[test]
fn an_attempt_that_comes_late_takes_nothing_over() {
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
    assert!(stuck.at + TIMEOUT > host.now, "it was not too late");
}

/// Catches a claim in line that takes the lock from its own owner, whose turn came before.
#[test]
fn who_found_a_stranger_at_first_waits_behind_its_own_owner() {
    let mut host = job();
    host.stranger_acquires(LOCK, TTL);
    host.ask(former(&host, 1, true));
    let call = host.acquire(LOCK, Wait::Forever);
    host.stranger_releases(LOCK);
    let first = host.token_of(LOCK);
    // It asks at its heartbeat, while the grant, of which nobody heard, still lasts.
    host.advance(ms(5_500));
    assert!(host.ops().len() > 1, "it asked again");
    assert!(host.is_open(call));
    assert_eq!(host.token_of(LOCK), first);
}

/// Catches a takeover from whoever has the lock by then, and a claim that is lost between the two
/// questions.
#[test]
fn a_tenure_that_ended_meanwhile_is_not_replaced_by_the_next() {
    let mut host = job();
    host.ask(former(&host, 1, false));
    host.net = Net::Hold;
    let call = host.acquire(LOCK, Wait::Forever);
    host.answer_next();
    let named = host.take();
    // Another of the owner's takes over first.
    let old = host.token_of(LOCK).expect("it is held");
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

/// Catches an engine that asks for ever, as fast as it is answered.
#[test]
fn a_server_that_offers_again_what_was_named_is_not_believed() {
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
