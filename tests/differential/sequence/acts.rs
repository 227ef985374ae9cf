//! The acts of clients.

use std::fmt;
use std::time::Duration;

use leasehold_engine::protocol::{
    Accept, Acquire, AskYield, Claim, ClientId, Command, Counter, ForceRelease, Inspect, LeaseId,
    List, LockKey, Op, Pattern, Reclaim, Release, Renew, Retire,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{FencingToken, Owner};
use proptest::prelude::*;
use proptest::sample::select;

use super::NameIndex;
use crate::model::Model;
use crate::samples::{self, FRACTION, NAMESPACE};

const LABELS: [&str; 4] = ["job", "job:7\0\n}", "::", "🔒"];

/// Patterns that match several names, one or none; characters with a meaning in globs must match only
/// themselves.
const PATTERNS: [&str; 18] = [
    "*", "**", "plain", "p*n", "*}*", "}", "%7D", "*7D", "%*", "*:lock", "*\\\\*", "*\\*?*",
    "*\\**", "🔒*[a]", "*?[*", "*\r\n*", "*\0*", "none*",
];

/// An operation whose `not_after` is still to be computed.
#[derive(Clone)]
pub(crate) struct Planned {
    name: NameIndex,
    act: Act,
    not_after: NotAfter,
}

#[derive(Clone, Debug)]
enum Act {
    Acquire {
        who: Who,
        waits: bool,
        reclaims: Which,
    },
    /// A renewal of the lock's present tenure or of an earlier one.
    Renew {
        who: Who,
        current: bool,
        ttl: Duration,
        floor: Option<Floor>,
    },
    /// A release with the token of the lock's present tenure, or without a token.
    Release {
        who: Who,
        named: bool,
    },
    /// The retirement of the lock's present tenure or of an earlier one.
    Retire {
        who: Who,
        current: bool,
        ttl: Duration,
    },
    /// The acceptance of the lock's present tenure or of an earlier one.
    Accept {
        from: Who,
        who: Who,
        current: bool,
    },
    /// A forced release of the lock's present tenure or of an earlier one.
    ForceRelease {
        current: bool,
    },
    /// A request to yield to the lock's present tenure or to an earlier one.
    AskYield {
        current: bool,
        within: Duration,
        by: Owner,
    },
    Inspect,
    List(&'static str),
}

/// The tenure that an acquisition may take over.
#[derive(Copy, Clone, Debug)]
enum Which {
    /// The acquisition asks for it.
    Told,
    /// The tenure that the lock has then.
    Current,
    /// The first tenure that a dense counter numbers.
    First,
    None,
    /// No tenure; it proposes a token this far from the clock, in microseconds.
    Proposed(i64),
}

/// The floor to which a renewal raises the last token.
#[derive(Copy, Clone, Debug)]
enum Floor {
    /// This much above the last token.
    Above(u64),
    /// This many microseconds before the model's last time.
    Behind(u64),
    /// This many microseconds after it.
    Ahead(u64),
    /// This much below the greatest token.
    NearEnd(u64),
}

#[derive(Clone, Debug)]
enum Who {
    /// One of the sequence's claims.
    Known(usize),
    /// The lock's holder then, if any.
    Holder,
    /// The first waiter then, dead or alive, if any.
    First,
    /// The first live waiter then, if any.
    Next,
    /// A claim that is made only once.
    Stranger(Claim),
}

#[derive(Copy, Clone, Debug)]
enum NotAfter {
    Past,
    /// This many microseconds after the model's last time: late or not, as it happens.
    Present(u64),
    Future,
    Never,
}

impl Planned {
    /// Returns the operation at a moment, given the model's state then.
    pub(crate) fn at(
        &self,
        now: ServerTime,
        names: &[LockKey],
        claims: &[Claim],
        model: &Model,
    ) -> Op {
        let key = names[self.name % names.len()].clone();
        let claim = |who: &Who| who.claim(now, &key, claims, model);
        let token = |current| {
            let token = model.token_of(now, &key).filter(|_| current);
            token.unwrap_or_else(samples::first_token)
        };
        let command = match &self.act {
            Act::Acquire {
                who,
                waits,
                reclaims,
            } => Command::Acquire(Acquire {
                reclaims: match reclaims {
                    Which::Told => Reclaim::Ask,
                    Which::Current => Reclaim::From(token(true)),
                    Which::First => Reclaim::From(token(false)),
                    Which::None => Reclaim::Never,
                    Which::Proposed(apart) => Reclaim::Propose(samples::token(
                        now.as_micros().saturating_add_signed(*apart),
                    )),
                },
                claim: claim(who),
                key,
                waits: *waits,
            }),
            Act::Renew {
                who,
                current,
                ttl,
                floor,
            } => Command::Renew(Renew {
                floor: floor.map(|floor| floor.token(now, model.last_token(now, &key))),
                token: token(*current),
                lease: claim(who).lease,
                counter: claim(who).counter,
                key,
                ttl: *ttl,
            }),
            Act::Release { who, named } => Command::Release(Release {
                claim: claim(who),
                token: named.then(|| token(true)),
                key,
                completes: false,
            }),
            Act::Retire { who, current, ttl } => Command::Retire(Retire {
                token: token(*current),
                lease: claim(who).lease,
                counter: claim(who).counter,
                key,
                ttl: *ttl,
            }),
            Act::Accept { from, who, current } => Command::Accept(Accept {
                token: token(*current),
                lease: claim(from).lease,
                claim: claim(who),
                key,
            }),
            Act::ForceRelease { current } => Command::ForceRelease(ForceRelease {
                token: token(*current),
                key,
            }),
            Act::AskYield {
                current,
                within,
                by,
            } => Command::AskYield(AskYield {
                token: token(*current),
                key,
                within: *within,
                by: by.clone(),
            }),
            Act::Inspect => Command::Inspect(Inspect { key }),
            Act::List(pattern) => Command::List(List {
                pattern: Pattern::new(NAMESPACE, pattern).expect("the tests' patterns are valid"),
                cursor: 0,
            }),
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

impl Floor {
    fn token(self, now: ServerTime, last: Option<u64>) -> FencingToken {
        let number = match self {
            Self::Above(more) => last.unwrap_or(1) + more,
            Self::Behind(micros) => now.as_micros() - micros,
            Self::Ahead(micros) => now.as_micros() + micros,
            Self::NearEnd(left) => FencingToken::MAX.get() - left,
        };
        FencingToken::new(number).unwrap_or(FencingToken::MAX)
    }
}

impl Who {
    fn claim(&self, now: ServerTime, key: &LockKey, claims: &[Claim], model: &Model) -> Claim {
        let known = claims[0].clone();
        match self {
            Self::Known(index) => claims[index % claims.len()].clone(),
            Self::Stranger(claim) => claim.clone(),
            Self::First => model.first_in_line(now, key).unwrap_or(known),
            Self::Next => model.next_in_line(now, key).unwrap_or(known),
            Self::Holder => {
                let lease = model.lease_of(now, key).unwrap_or(known.lease);
                let own = claims.iter().find(|claim| claim.lease == lease);
                own.cloned().unwrap_or(Claim { lease, ..known })
            }
        }
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

pub(super) fn planned() -> impl Strategy<Value = Planned> {
    (0..3_usize).prop_flat_map(planned_on)
}

pub(crate) fn planned_on(name: NameIndex) -> impl Strategy<Value = Planned> {
    let not_after = prop_oneof![
        14 => Just(NotAfter::Future),
        1 => Just(NotAfter::Never),
        1 => (0..=400_u64).prop_map(NotAfter::Present),
        1 => Just(NotAfter::Past),
    ];
    (acts(), not_after).prop_map(move |(act, not_after)| Planned {
        name,
        act,
        not_after,
    })
}

/// A client asks and waits.
pub(super) fn waiting_on(name: NameIndex) -> impl Strategy<Value = Planned> {
    (0..6_usize).prop_map(move |index| Planned {
        name,
        act: Act::Acquire {
            who: Who::Known(index),
            waits: true,
            reclaims: Which::Told,
        },
        not_after: NotAfter::Future,
    })
}

/// A client takes the lock for a moment and lets its token be forgotten soon.
pub(super) fn brief_on(name: NameIndex) -> impl Strategy<Value = Planned> {
    claims().prop_map(move |claim| Planned {
        name,
        act: Act::Acquire {
            who: Who::Stranger(Claim {
                counter: Counter::ClockFloor {
                    retention: Duration::from_millis(20) + FRACTION,
                },
                ttl: Duration::from_millis(20) + FRACTION,
                ..claim
            }),
            waits: false,
            reclaims: Which::Told,
        },
        not_after: NotAfter::Future,
    })
}

/// The lock goes on to the next waiter, would do so, or the next waiter comes for it.
pub(super) fn freeing_on(name: NameIndex) -> impl Strategy<Value = Planned> {
    // The first waiter may have died.
    let who_asks = prop_oneof![2 => Just(Who::Next), 1 => Just(Who::First)];
    let next = who_asks.prop_map(|who| Act::Acquire {
        who,
        waits: true,
        reclaims: Which::Told,
    });
    let act = prop_oneof![
        3 => any::<bool>().prop_map(|named| Act::Release { who: Who::Holder, named }),
        1 => (who(), any::<bool>()).prop_map(|(who, named)| Act::Release { who, named }),
        2 => Just(Act::ForceRelease { current: true }),
        2 => Just(Act::Inspect),
        3 => next,
    ];
    act.prop_map(move |act| Planned {
        name,
        act,
        not_after: NotAfter::Future,
    })
}

/// The holder is asked to yield, or renews.
pub(super) fn wanting_on(name: NameIndex) -> BoxedStrategy<Planned> {
    let renews = renewals(Just(Who::Holder), prop::option::weighted(0.2, floors()));
    let act = prop_oneof![1 => requests(), 1 => renews];
    let planned = act.prop_map(move |act| Planned {
        name,
        act,
        not_after: NotAfter::Future,
    });
    planned.boxed()
}

/// The holder releases, or a client joins the line.
pub(super) fn handing_on(name: NameIndex) -> impl Strategy<Value = Planned> {
    let release = Just(Act::Release {
        who: Who::Holder,
        named: true,
    });
    let release = release.prop_map(move |act| Planned {
        name,
        act,
        not_after: NotAfter::Future,
    });
    prop_oneof![2 => release, 1 => waiting_on(name)]
}

/// Boxed, because the values of all acts together would be too large for a test's stack.
fn acts() -> BoxedStrategy<Act> {
    let acquire = (who(), prop::bool::weighted(0.75), which());
    let acts = prop_oneof![
        20 => acquire.prop_map(|(who, waits, reclaims)| Act::Acquire {
            who,
            waits,
            reclaims,
        }),
        4 => renewals(who(), prop::option::weighted(0.4, floors())),
        3 => renewals(Just(Who::Holder), floors().prop_map(Some)),
        3 => any::<bool>().prop_map(|named| Act::Release { who: Who::Holder, named }),
        4 => (who(), any::<bool>()).prop_map(|(who, named)| Act::Release { who, named }),
        3 => retirements(),
        4 => acceptances(),
        3 => (0..6_u8).prop_map(|stale| Act::ForceRelease { current: stale > 0 }),
        3 => requests(),
        4 => Just(Act::Inspect),
        2 => select(&PATTERNS[..]).prop_map(Act::List),
    ];
    acts.boxed()
}

fn renewals(
    who: impl Strategy<Value = Who>,
    floor: impl Strategy<Value = Option<Floor>>,
) -> impl Strategy<Value = Act> {
    let renewal = (who, 0..8_u8, times(), floor);
    renewal.prop_map(|(who, stale, ttl, floor)| Act::Renew {
        who,
        current: stale > 0,
        ttl,
        floor,
    })
}

fn retirements() -> impl Strategy<Value = Act> {
    let who = prop_oneof![3 => Just(Who::Holder), 1 => who()];
    (who, 0..8_u8, times()).prop_map(|(who, stale, ttl)| Act::Retire {
        who,
        current: stale > 0,
        ttl,
    })
}

fn acceptances() -> BoxedStrategy<Act> {
    let from = prop_oneof![4 => Just(Who::Holder), 1 => who()];
    let accept = (from, who(), 0..6_u8).prop_map(|(from, who, stale)| Act::Accept {
        from,
        who,
        current: stale > 0,
    });
    accept.boxed()
}

fn requests() -> impl Strategy<Value = Act> {
    let within = prop_oneof![1 => times(), 1 => (1..=20_u64).prop_map(Duration::from_millis)];
    let request = (0..8_u8, within, owners()).prop_map(|(stale, within, by)| Act::AskYield {
        current: stale > 0,
        within,
        by,
    });
    // Strategies of this size take up a test thread's stack.
    request.boxed()
}

fn floors() -> impl Strategy<Value = Floor> {
    prop_oneof![
        4 => (0..=3_u64).prop_map(Floor::Above),
        4 => (0..=3_000_u64).prop_map(Floor::Behind),
        3 => (1..=4_000_000_000_u64).prop_map(Floor::Ahead),
        1 => (0..=2_u64).prop_map(Floor::NearEnd),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        2 => Just(Which::Told),
        6 => Just(Which::Current),
        1 => Just(Which::First),
        1 => Just(Which::None),
        1 => select(&[-150_000, -60_000, 0, 3_000, 60_000, 90_000, 150_000]).prop_map(Which::Proposed),
    ]
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        12 => (0..6_usize).prop_map(Who::Known),
        1 => Just(Who::Holder),
        1 => Just(Who::First),
        2 => Just(Who::Next),
        1 => claims().prop_map(Who::Stranger),
    ]
}

/// Returns claims of few leases, so that conflicts happen: the same lease with different clients, owners and
/// counters.
pub(crate) fn claims() -> impl Strategy<Value = Claim> {
    let leases = prop_oneof![
        Just(1),
        Just(2),
        Just(0xa2),
        Just(u128::MAX),
        Just(1 << 127),
        Just(1 << 64)
    ];
    let counter = prop_oneof![
        3 => retentions().prop_map(|retention| Counter::ClockFloor { retention }),
        2 => Just(Counter::Dense),
    ];
    let times = (times(), windows());
    (leases, 0..super::CLIENTS, owners(), counter, times).prop_map(
        |(lease, number, owner, counter, (ttl, window))| Claim {
            lease: LeaseId(lease),
            client: client(number),
            owner,
            counter,
            ttl,
            window,
        },
    )
}

/// Returns claims of different leases, as most programs make them; the script handles these by a written-out
/// fast path.
pub(crate) fn common_claims() -> impl Strategy<Value = Claim> {
    let retention = (3_600_000..=10_000_000_u64).prop_map(Duration::from_millis);
    let times = (1_000..=3_600_000_u64, 2_000..=12_000_u64);
    let times = times.prop_map(|(ttl, window)| [ttl, window].map(Duration::from_millis));
    (1..=6_u128, 0..super::CLIENTS, owners(), retention, times).prop_map(
        |(lease, number, owner, retention, [ttl, window])| Claim {
            lease: LeaseId(lease),
            client: client(number),
            owner,
            counter: Counter::ClockFloor { retention },
            ttl,
            window,
        },
    )
}

/// Returns one of the clients that may subscribe.
pub(crate) fn client(number: usize) -> ClientId {
    let number = u64::try_from(number + 1).expect("there are few clients");
    ClientId(number << 60 | 0xc)
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

fn retentions() -> impl Strategy<Value = Duration> {
    let millis = prop_oneof![
        2 => 10..=60_u64,
        3 => 1_000..=10_000_000_u64,
    ];
    millis.prop_map(|millis| Duration::from_millis(millis) + FRACTION)
}

/// Returns times that are short enough to end during the test, or long. The script must drop what is below a
/// millisecond.
fn times() -> impl Strategy<Value = Duration> {
    let millis = prop_oneof![
        4 => 10..=60_u64,
        5 => 1_000..=3_600_000_u64,
        1 => 3_600_000..=10_000_000_u64,
    ];
    millis.prop_map(|millis| Duration::from_millis(millis) + FRACTION)
}

/// Returns windows that are short enough to die in line, or close to the limits of an unheard grant and of
/// the longest window.
fn windows() -> impl Strategy<Value = Duration> {
    let millis = prop_oneof![
        4 => 8..=40_u64,
        4 => 2_000..=12_000_u64,
        1 => 59_000..=70_000_u64,
    ];
    millis.prop_map(|millis| Duration::from_millis(millis) + FRACTION)
}
