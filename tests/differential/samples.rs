//! Short ways to make the values that the tests need.

use std::time::Duration;

use leasehold_engine::protocol::{
    Acquire, BatchReply, Claim, ClientId, Command, Counter, ForceRelease, Inspect, LeaseId, List,
    LockKey, Op, Pattern, Reclaim, Release, Renew,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{FencingToken, Name, Owner};

/// Needs no escape less than a name does, and has what a glob would take for more than itself.
pub(crate) const NAMESPACE: &str = "di[ff}er:en*tial%";

pub(crate) const FLOOR: Counter = Counter::ClockFloor {
    retention: Duration::from_secs(10_000),
};

/// All times of random claims have it: the store counts whole milliseconds, so that claims that
/// differ in less are one to the script, and not to the model.
pub(crate) const FRACTION: Duration = Duration::from_micros(789);

/// Of the samples' claims.
pub(crate) const WINDOW: Duration = Duration::from_secs(12);

pub(crate) fn key(name: &str) -> LockKey {
    let name = Name::new(name).expect("the tests' names are valid");
    LockKey::new(NAMESPACE, &name).expect("the tests' namespace is valid")
}

/// With a label, by one client per lease.
pub(crate) fn claim(lease: u32, counter: Counter) -> Claim {
    Claim {
        lease: LeaseId(u128::from(lease)),
        client: ClientId(u64::from(lease)),
        owner: Owner::labelled("somebody").expect("a valid label"),
        counter,
        ttl: Duration::from_secs(600),
        window: WINDOW,
    }
}

/// Ten minutes to live; it does not wait, and asks what it may take over.
pub(crate) fn acquire(key: &LockKey, lease: u32, counter: Counter) -> Acquire {
    Acquire {
        key: key.clone(),
        claim: claim(lease, counter),
        waits: false,
        reclaims: Reclaim::Ask,
    }
}

/// Takes a place in line if the lock is not free.
pub(crate) fn wait(key: &LockKey, lease: u32) -> Command {
    let waits = true;
    Command::Acquire(Acquire {
        waits,
        ..acquire(key, lease, Counter::Dense)
    })
}

pub(crate) fn first_token() -> FencingToken {
    token(1)
}

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("a valid token")
}

/// Of the first tenure that a dense counter numbers.
pub(crate) fn renew(key: &LockKey, lease: u32) -> Command {
    Command::Renew(Renew {
        key: key.clone(),
        lease: LeaseId(u128::from(lease)),
        token: first_token(),
        counter: Counter::Dense,
        ttl: Duration::from_secs(700),
        floor: None,
    })
}

/// The same with a floor.
pub(crate) fn raise(key: &LockKey, lease: u32, floor: FencingToken) -> Command {
    let Command::Renew(renew) = renew(key, lease) else {
        unreachable!("it is a renewal");
    };
    let floor = Some(floor);
    Command::Renew(Renew { floor, ..renew })
}

/// Ends what [`acquire`] with a dense counter or [`wait`] began.
pub(crate) fn release(key: &LockKey, lease: u32) -> Command {
    Command::Release(Release {
        key: key.clone(),
        claim: claim(lease, Counter::Dense),
        token: Some(first_token()),
    })
}

/// Of the first tenure that a dense counter numbers.
pub(crate) fn force_release(key: &LockKey) -> Command {
    force_release_of(key, first_token())
}

pub(crate) fn force_release_of(key: &LockKey, token: FencingToken) -> Command {
    let key = key.clone();
    Command::ForceRelease(ForceRelease { key, token })
}

pub(crate) fn inspect(key: &LockKey) -> Command {
    Command::Inspect(Inspect { key: key.clone() })
}

/// Begins a walk over all that are held.
pub(crate) fn list() -> Command {
    Command::List(List {
        pattern: Pattern::new(NAMESPACE, "*").expect("a valid pattern"),
        cursor: 0,
    })
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

/// The time that a reply tells.
pub(crate) fn told(answer: &BatchReply) -> ServerTime {
    answer.time.expect("it looked at the clock")
}
