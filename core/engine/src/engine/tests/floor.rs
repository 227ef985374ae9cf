//! Renewals that raise the last token of the name.

use super::host::{Host, LOCK, Net, TTL, key, ms};
use crate::engine::{Answer, Input};
use crate::error::ErrorKind;
use crate::protocol::{Command, LeaseId, Op, Renew};
use crate::token::FencingToken;

/// Returns a token above all tokens by the test server's clock, by at least `more`.
fn floor(more: u64) -> FencingToken {
    FencingToken::new(FencingToken::MAX.get() / 2 + more).expect("a valid token")
}

impl Host {
    fn last_token(&self) -> Option<u64> {
        self.servers[0].last_token(self.server_now(), &key(LOCK))
    }

    /// The floors of the renewals that were sent.
    fn floors(&self) -> Vec<Option<FencingToken>> {
        let ops = self.log.iter().flat_map(|sent| &sent.batch);
        let floor = |op: &Op| match &op.command {
            Command::Renew(Renew { floor, .. }) => Some(*floor),
            _ => None,
        };
        ops.filter_map(floor).collect()
    }
}

#[test]
fn the_next_token_is_greater_and_the_tenures_own_stays() {
    let mut host = Host::new();
    let own = host.hold(LOCK);
    let call = host.raise(own.lease, floor(1));
    assert_eq!(host.outcome(call), &Answer::Renew(Ok(())));
    assert_eq!(host.last_token(), Some(floor(1).get()));
    assert_eq!(host.token_of(LOCK), Some(own.token));
    host.advance(TTL);
    assert!(host.is_held(LOCK));
    let floors = host.floors();
    assert_eq!(floors[0], Some(floor(1)));
    assert!(
        floors.len() > 2 && floors[1..].iter().all(Option::is_none),
        "one confirmed floor is enough: {floors:?}"
    );
    host.release(own.lease);
    assert_eq!(host.hold(LOCK).token, floor(2));
}

/// Catches a floor that is forgotten with its call, and one that counts as raised although the store may not
/// have received it.
#[test]
fn every_renewal_carries_the_floor_until_one_succeeds() {
    for net in [Net::LoseRequests, Net::LoseReplies] {
        let (mut host, lease) = Host::holding();
        host.net = net;
        let call = host.raise(lease, floor(2));
        host.advance(ms(2_100));
        assert_eq!(host.error(call), ErrorKind::Timeout);
        let lower = host.raise(lease, floor(1));
        host.advance(ms(2_100));
        assert_eq!(host.error(lower), ErrorKind::Timeout);
        host.net = Net::Up;
        host.forget();
        host.advance(TTL);
        let floors = host.floors();
        assert_eq!(
            floors[..2],
            [Some(floor(2)), None],
            "the highest floor is sent once"
        );
        assert_eq!(host.last_token(), Some(floor(2).get()));
    }
}

/// Catches the answer to a renewal with a lower floor, or none, that is taken for the answer to this one.
#[test]
fn a_call_waits_for_a_renewal_that_has_its_floor() {
    let (mut host, lease) = Host::holding();
    host.net = Net::Hold;
    let calls = [
        host.renew(lease),
        host.raise(lease, floor(2)),
        host.raise(lease, floor(1)),
    ];
    let answered = |host: &Host| calls.map(|call| !host.is_open(call));
    host.answer_next();
    assert_eq!(answered(&host), [true, false, false]);
    let joins = [host.raise(lease, floor(2)), host.renew(lease)];
    let higher = host.raise(lease, floor(3));
    host.answer_next();
    assert_eq!(answered(&host), [true; 3]);
    for call in joins {
        assert_eq!(host.outcome(call), &Answer::Renew(Ok(())));
    }
    assert!(host.is_open(higher));
    host.answer_next();
    assert_eq!(host.outcome(higher), &Answer::Renew(Ok(())));
    assert_eq!(host.floors(), [None, Some(floor(2)), Some(floor(3))]);
    assert!(host.pending.is_empty());
    assert_eq!(host.last_token(), Some(floor(3).get()));
}

/// A check carries the floor too, except that it may have left before the call.
#[test]
fn a_call_does_not_take_a_check_for_its_renewal() {
    for fixed in [false, true] {
        let mut host = Host::new();
        host.fixed = fixed;
        host.input(Input::WATCHING);
        let lease = host.hold(LOCK).lease;
        host.advance(ms(50));
        host.net = Net::Hold;
        host.input(Input::changed(LOCK));
        let call = host.raise(lease, floor(1));
        host.answer_next();
        assert!(host.is_open(call));
        host.answer_next();
        assert_eq!(host.outcome(call), &Answer::Renew(Ok(())));
        assert_eq!(host.floors(), [None, Some(floor(1))]);
    }
}

#[test]
fn a_tenure_that_is_over_raises_nothing() {
    let (mut host, lease) = Host::holding();
    host.servers[0].delete(&key(LOCK));
    host.stranger_acquires(LOCK, TTL);
    let token = host.token_of(LOCK).map(FencingToken::get);
    let call = host.raise(lease, floor(1));
    assert_eq!(host.error(call), ErrorKind::NotHeld);
    assert_eq!(host.last_token(), token);
    let wrong = host.raise(LeaseId(lease.0 + 1), floor(1));
    assert_eq!(host.error(wrong), ErrorKind::NotHeld);
}
