//! Random sequences of what clients and administrators do.

use std::fmt;
use std::time::Duration;

use leasehold::protocol::{Acquire, ClientId, Command, Counter, LeaseId, LockKey, Op};
use leasehold::time::ServerTime;
use leasehold::{FencingToken, Owner};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

use crate::samples;

/// Names that break what does not escape, quote or count bytes.
const NAMES: [&str; 10] = [
    "plain",
    "{",
    "}",
    "a}{b",
    "%7D",
    "x:lock",
    "line\r\nbreak",
    "nul\0nul",
    "🔒 *?[a]",
    "\\'\"",
];

const LABELS: [&str; 4] = ["job", "job:7\0\n}", "::", "🔒"];

/// Steps on a few names.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) names: Vec<&'static str>,
    pub(crate) steps: Vec<Step>,
}

/// A number that stands for one of the sequence's names.
pub(crate) type NameIndex = usize;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A client's operations.
    Batch(Vec<Planned>),
    /// Time passes.
    Sleep(u64),
    /// Time passes until something has expired.
    OutliveNext,
    /// DEL of a lock.
    Delete(NameIndex),
    /// PEXPIREAT of a lock to a moment long ago.
    Expire(NameIndex),
    /// FLUSHALL.
    Flush,
    /// Frees a lock and sets its counter an hour ahead of the clock.
    CounterAhead(NameIndex),
    /// Frees a lock and sets its counter this much before the greatest token.
    CounterNearEnd(NameIndex, u64),
    /// SCRIPT FLUSH.
    ForgetScripts,
}

/// An operation whose `not_after` is still to be computed.
#[derive(Clone)]
pub(crate) struct Planned {
    name: NameIndex,
    act: Act,
    not_after: NotAfter,
}

#[derive(Clone, Debug)]
enum Act {
    Acquire(AcquireAct),
    /// Of the tenure that the lock has, or of an earlier one.
    Renew {
        lease: u128,
        current: bool,
        ttl: Duration,
    },
    Release {
        lease: u128,
    },
    ForceRelease,
    Inspect,
}

#[derive(Clone, Debug)]
struct AcquireAct {
    lease: u128,
    client: u64,
    owner: Owner,
    ttl: Duration,
    counter: Counter,
}

#[derive(Copy, Clone, Debug)]
enum NotAfter {
    Past,
    /// So many microseconds after the last look at the clock: late or not, as it happens.
    Present(u64),
    Future,
    Never,
}

impl Planned {
    /// The operation at a moment, with the tokens that the locks have then.
    pub(crate) fn at(
        &self,
        now: ServerTime,
        names: &[LockKey],
        token_of: impl Fn(&LockKey) -> Option<FencingToken>,
    ) -> Op {
        let key = names[self.name % names.len()].clone();
        let command = match self.act.clone() {
            Act::Acquire(act) => Command::Acquire(Acquire {
                key,
                lease: LeaseId(act.lease),
                ttl: act.ttl,
                client: ClientId(act.client),
                owner: act.owner,
                counter: act.counter,
            }),
            Act::Renew {
                lease,
                current,
                ttl,
            } => Command::Renew {
                token: token_of(&key)
                    .filter(|_| current)
                    .unwrap_or_else(samples::first_token),
                key,
                lease: LeaseId(lease),
                ttl,
            },
            Act::Release { lease } => Command::Release {
                key,
                lease: LeaseId(lease),
            },
            Act::ForceRelease => Command::ForceRelease { key },
            Act::Inspect => Command::Inspect { key },
        };
        let not_after = match self.not_after {
            NotAfter::Past => ServerTime::from_micros(now.as_micros() - 1),
            NotAfter::Present(micros) => now + Duration::from_micros(micros),
            NotAfter::Future => now + Duration::from_secs(60),
            NotAfter::Never => ServerTime::from_micros(u64::MAX),
        };
        Op { command, not_after }
    }
}

impl Sequence {
    pub(crate) fn keys(&self) -> Vec<LockKey> {
        self.names.iter().copied().map(samples::key).collect()
    }
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            act,
            not_after,
        } = self;
        write!(f, "on {name} until {not_after:?}: {act:?}")
    }
}

/// Up to 12 steps on two or three names.
pub(crate) fn sequences() -> impl Strategy<Value = Sequence> {
    let names = subsequence(NAMES.to_vec(), 2..=3);
    (names, vec(steps(), 1..=12)).prop_map(|(names, steps)| Sequence { names, steps })
}

fn steps() -> impl Strategy<Value = Step> {
    let name = 0..3_usize;
    prop_oneof![
        20 => vec(planned(), 1..=6).prop_map(Step::Batch),
        3 => Just(Step::OutliveNext),
        1 => (1..=30_u64).prop_map(Step::Sleep),
        1 => name.clone().prop_map(Step::Delete),
        1 => name.clone().prop_map(Step::Expire),
        1 => Just(Step::Flush),
        2 => name.clone().prop_map(Step::CounterAhead),
        1 => (name, 0..=2_u64).prop_map(|(name, left)| Step::CounterNearEnd(name, left)),
        1 => Just(Step::ForgetScripts),
    ]
}

fn planned() -> impl Strategy<Value = Planned> {
    let not_after = prop_oneof![
        10 => Just(NotAfter::Future),
        1 => Just(NotAfter::Never),
        1 => (0..=400_u64).prop_map(NotAfter::Present),
        1 => Just(NotAfter::Past),
    ];
    (0..3_usize, acts(), not_after).prop_map(|(name, act, not_after)| Planned {
        name,
        act,
        not_after,
    })
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => acquires().prop_map(Act::Acquire),
        2 => (leases(), 0..8_u8, times()).prop_map(|(lease, stale, ttl)| Act::Renew {
            lease,
            current: stale > 0,
            ttl,
        }),
        2 => leases().prop_map(|lease| Act::Release { lease }),
        1 => Just(Act::ForceRelease),
        2 => Just(Act::Inspect),
    ]
}

fn acquires() -> impl Strategy<Value = AcquireAct> {
    let counter = prop_oneof![
        3 => times().prop_map(|retention| Counter::ClockFloor { retention }),
        2 => Just(Counter::Dense),
    ];
    (leases(), 1..=3_u64, owners(), times(), counter).prop_map(
        |(lease, client, owner, ttl, counter)| AcquireAct {
            lease,
            client: client << 60 | 0xc,
            owner,
            ttl,
            counter,
        },
    )
}

/// Few, so that retries and conflicts happen.
fn leases() -> impl Strategy<Value = u128> {
    prop_oneof![Just(1), Just(0xa2), Just(u128::MAX), Just(1 << 127)]
}

fn owners() -> impl Strategy<Value = Owner> {
    let index = prop_oneof![8 => Just(0), 2 => 1..LABELS.len()];
    (index, prop::bool::weighted(0.6)).prop_map(|(index, reclaimable)| {
        let owner = if reclaimable {
            Owner::reclaimable(LABELS[index])
        } else {
            Owner::labelled(LABELS[index])
        };
        owner.expect("the tests' labels are valid")
    })
}

/// Short enough to see the end of, or long; the script is to drop what is less than a millisecond.
fn times() -> impl Strategy<Value = Duration> {
    let millis = prop_oneof![
        2 => 10..=60_u64,
        3 => 1_000..=10_000_000_u64,
    ];
    (millis, 0..1_000_u64)
        .prop_map(|(millis, micros)| Duration::from_micros(millis * 1_000 + micros))
}
