//! Short ways to make the values that the tests need.

use std::time::Duration;

use leasehold::protocol::{Acquire, ClientId, Command, Counter, LeaseId, LockKey, Op};
use leasehold::time::ServerTime;
use leasehold::{FencingToken, Name, Owner};

/// Needs no escape less than a name does.
pub(crate) const NAMESPACE: &str = "diff}er:ential%";

pub(crate) const FLOOR: Counter = Counter::ClockFloor {
    retention: Duration::from_secs(1_000),
};

pub(crate) fn key(name: &str) -> LockKey {
    let name = Name::new(name).expect("the tests' names are valid");
    LockKey::new(NAMESPACE, &name).expect("the tests' namespace is valid")
}

/// Ten minutes to live, with a label, by one client per lease.
pub(crate) fn acquire(key: &LockKey, lease: u32, counter: Counter) -> Acquire {
    Acquire {
        key: key.clone(),
        lease: LeaseId(u128::from(lease)),
        ttl: Duration::from_secs(600),
        client: ClientId(u64::from(lease)),
        owner: Owner::labelled("somebody").expect("a valid label"),
        counter,
    }
}

pub(crate) fn first_token() -> FencingToken {
    FencingToken::new(1).expect("a valid token")
}

/// Of the first tenure that a dense counter numbers.
pub(crate) fn renew(key: &LockKey, lease: u32) -> Command {
    Command::Renew {
        key: key.clone(),
        lease: LeaseId(u128::from(lease)),
        token: first_token(),
        ttl: Duration::from_secs(700),
    }
}

pub(crate) fn release(key: &LockKey, lease: u32) -> Command {
    Command::Release {
        key: key.clone(),
        lease: LeaseId(u128::from(lease)),
    }
}

pub(crate) fn force_release(key: &LockKey) -> Command {
    Command::ForceRelease { key: key.clone() }
}

pub(crate) fn inspect(key: &LockKey) -> Command {
    Command::Inspect { key: key.clone() }
}

/// Every operation on a key, for one lease.
pub(crate) fn every_operation(key: &LockKey, lease: u32) -> Vec<Command> {
    vec![
        Command::Acquire(acquire(key, lease, FLOOR)),
        renew(key, lease),
        release(key, lease),
        force_release(key),
        inspect(key),
    ]
}

/// A batch that is never late.
pub(crate) fn batch(commands: impl IntoIterator<Item = Command>) -> Vec<Op> {
    let op = |command| Op {
        command,
        not_after: ServerTime::from_micros(u64::MAX),
    };
    commands.into_iter().map(op).collect()
}
