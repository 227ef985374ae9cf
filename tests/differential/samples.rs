//! Helpers that make the values for the tests.

use std::time::Duration;

use leasehold_engine::protocol::{
    Accept, Acquire, AskYield, BatchReply, Claim, ClientId, Command, Counter, ForceRelease,
    Inspect, LeaseId, List, LockKey, Op, Pattern, Reclaim, Release, Renew, Retire,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{FencingToken, Name, Owner, Share};

/// A namespace that needs as many escapes as a name and contains characters with a meaning in globs.
pub(crate) const NAMESPACE: &str = "di[ff}er:en*tial%";

pub(crate) const FLOOR: Counter = Counter::ClockFloor {
    retention: Duration::from_secs(10_000),
};

/// The part below a millisecond of all times of random claims. The store counts whole milliseconds, so claims
/// that differ by less are the same for the script, and not for the model.
pub(crate) const FRACTION: Duration = Duration::from_micros(789);

/// The window of the samples' claims.
pub(crate) const WINDOW: Duration = Duration::from_secs(12);

pub(crate) fn key(name: &str) -> LockKey {
    let name = Name::new(name).expect("the tests' names are valid");
    LockKey::new(NAMESPACE, &name).expect("the tests' namespace is valid")
}

/// Returns a claim with a label. Each lease has its own client.
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

/// Returns an acquisition for ten minutes. It does not wait, and asks what it may take over.
pub(crate) fn acquire(key: &LockKey, lease: u32, counter: Counter) -> Acquire {
    Acquire {
        key: key.clone(),
        claim: claim(lease, counter),
        waits: false,
        reclaims: Reclaim::Ask,
    }
}

/// Returns an acquisition of a part of a shared name for ten minutes. It does not wait.
pub(crate) fn admit(key: &LockKey, lease: u32, (counter, share): (Counter, Share)) -> Acquire {
    let mut admit = acquire(key, lease, counter);
    admit.claim.owner = Owner::sharing("somebody", share).expect("a short label is valid");
    admit.reclaims = Reclaim::Never;
    admit
}

/// Returns an acquisition that joins the line if the lock is not free.
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

/// Returns a renewal of the first tenure that a dense counter numbers.
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

/// Returns a renewal with a floor.
pub(crate) fn raise(key: &LockKey, lease: u32, floor: FencingToken) -> Command {
    let Command::Renew(renew) = renew(key, lease) else {
        unreachable!("it is a renewal");
    };
    let floor = Some(floor);
    Command::Renew(Renew { floor, ..renew })
}

/// Returns the release of what [`acquire`] with a dense counter or [`wait`] began.
pub(crate) fn release(key: &LockKey, lease: u32) -> Command {
    Command::Release(Release {
        key: key.clone(),
        claim: claim(lease, Counter::Dense),
        token: Some(first_token()),
        completes: false,
    })
}

/// Returns the retirement of the first tenure that a dense counter numbers, for ten minutes.
pub(crate) fn retire(key: &LockKey, lease: u32) -> Command {
    Command::Retire(Retire {
        key: key.clone(),
        lease: LeaseId(u128::from(lease)),
        token: first_token(),
        counter: Counter::Dense,
        ttl: Duration::from_secs(600),
    })
}

/// Returns an acceptance of the first tenure that a dense counter numbers, by a lease a hundred above.
pub(crate) fn accept(key: &LockKey, lease: u32) -> Command {
    Command::Accept(Accept {
        key: key.clone(),
        lease: LeaseId(u128::from(lease)),
        token: first_token(),
        claim: claim(lease + 100, Counter::Dense),
    })
}

/// Returns a forced release of the first tenure that a dense counter numbers.
pub(crate) fn force_release(key: &LockKey) -> Command {
    force_release_of(key, first_token())
}

pub(crate) fn force_release_of(key: &LockKey, token: FencingToken) -> Command {
    let key = key.clone();
    Command::ForceRelease(ForceRelease { key, token })
}

/// Returns a request to yield to the first tenure that a dense counter numbers.
pub(crate) fn ask_yield(key: &LockKey) -> Command {
    Command::AskYield(AskYield {
        key: key.clone(),
        token: first_token(),
        within: Duration::from_secs(60),
        by: Owner::labelled("asker").expect("a valid label"),
    })
}

pub(crate) fn inspect(key: &LockKey) -> Command {
    Command::Inspect(Inspect { key: key.clone() })
}

/// Returns the first step of a walk over all held locks.
pub(crate) fn list() -> Command {
    Command::List(List {
        pattern: Pattern::new(NAMESPACE, "*").expect("a valid pattern"),
        cursor: 0,
    })
}

/// Returns every operation on a key for one lease.
pub(crate) fn every_operation(key: &LockKey, lease: u32) -> Vec<Command> {
    vec![
        Command::Acquire(acquire(key, lease, FLOOR)),
        renew(key, lease),
        ask_yield(key),
        release(key, lease),
        retire(key, lease),
        accept(key, lease),
        force_release(key),
        inspect(key),
    ]
}

/// Returns a batch that is never late.
pub(crate) fn batch(commands: impl IntoIterator<Item = Command>) -> Vec<Op> {
    let op = |command| Op {
        command,
        not_after: ServerTime::from_micros(u64::MAX),
    };
    commands.into_iter().map(op).collect()
}

/// Returns the time of a reply.
pub(crate) fn told(answer: &BatchReply) -> ServerTime {
    answer.time.expect("the batch reads the clock")
}
