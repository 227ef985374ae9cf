//! Random sequences of acts of clients and administrators.

mod acts;

use std::time::Duration;

use leasehold_engine::Owner;
use leasehold_engine::protocol::{
    Acquire, Claim, ClientId, Command, Counter, LeaseId, LockKey, Op, Reclaim,
};
use leasehold_engine::time::ServerTime;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::subsequence;

use crate::model::Model;
use crate::samples;
pub(crate) use acts::{Planned, claims, client, planned_on};
use acts::{brief_on, common_claims, freeing_on, handing_on, planned, waiting_on, wanting_on};

/// Names that break code without the right escapes, quotes or byte counts.
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

/// The number of clients that may subscribe.
pub(crate) const CLIENTS: usize = 3;

/// A sequence of steps on a few names, by a few claims.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) names: Vec<&'static str>,
    pub(crate) claims: Vec<Claim>,
    /// The clients that are subscribed when it begins.
    pub(crate) subscribed: [bool; CLIENTS],
    pub(crate) steps: Vec<Step>,
}

/// The index of one of the sequence's names.
pub(crate) type NameIndex = usize;

/// One step of a sequence.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A client's operations.
    Batch(Vec<Planned>),
    /// Many more clients ask for a lock at once.
    Crowd(Crowd),
    /// SUBSCRIBE by a client, or UNSUBSCRIBE.
    Listen(usize, bool),
    /// A pause, in milliseconds.
    Sleep(u64),
    /// A pause until a key has expired or a waiter has died.
    OutliveNext,
    /// DEL of a lock.
    Delete(NameIndex),
    /// PEXPIREAT of a lock to a moment long ago.
    Expire(NameIndex),
    /// DEL of the line of a lock that is held.
    DeleteLine(NameIndex),
    /// FLUSHALL.
    Flush,
    /// Frees a lock without a line, and sets its counter an hour ahead of the clock.
    CounterAhead(NameIndex),
    /// Frees a lock without a line, and sets its counter an hour behind the clock.
    CounterBehind(NameIndex),
    /// Frees a lock without a line, and sets its counter this much before the greatest token.
    CounterNearEnd(NameIndex, u64),
    /// SCRIPT FLUSH.
    ForgetScripts,
}

/// More waiters than an inspection names or a newcomer removes.
#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    name: NameIndex,
    count: u8,
    window: Duration,
}

impl Crowd {
    pub(crate) fn batch(&self, names: &[LockKey]) -> Vec<Op> {
        let key = &names[self.name % names.len()];
        let ask = |number: u8| {
            let lease = LeaseId(u128::from(number) << 64);
            let claim = Claim {
                lease,
                client: ClientId(u64::MAX),
                owner: Owner::labelled(format!("in the crowd {number}")).expect("a valid label"),
                counter: Counter::Dense,
                ttl: Duration::from_secs(60),
                window: self.window + samples::FRACTION,
            };
            Command::Acquire(Acquire {
                key: key.clone(),
                claim,
                waits: true,
                reclaims: Reclaim::Never,
            })
        };
        samples::batch((0..self.count).map(ask))
    }
}

impl Sequence {
    pub(crate) fn keys(&self) -> Vec<LockKey> {
        self.names.iter().copied().map(samples::key).collect()
    }

    /// Returns the operations at a moment, given the model's state then.
    pub(crate) fn batch(&self, planned: &[Planned], now: ServerTime, model: &Model) -> Vec<Op> {
        let names = self.keys();
        let op = |planned: &Planned| planned.at(now, &names, &self.claims, model);
        planned.iter().map(op).collect()
    }
}

/// Returns sequences of up to 14 scenes on up to three names.
pub(crate) fn sequences() -> impl Strategy<Value = Sequence> {
    let claims = prop_oneof![2 => vec(claims(), 6), 1 => vec(common_claims(), 6)];
    sequences_of(claims, scenes())
}

/// Returns sequences of single steps, so that shrinking can leave out each step.
pub(crate) fn plain_sequences() -> impl Strategy<Value = Sequence> {
    sequences_of(vec(claims(), 6), steps().prop_map(|step| vec![step]))
}

fn sequences_of(
    claims: impl Strategy<Value = Vec<Claim>>,
    scenes: impl Strategy<Value = Vec<Step>>,
) -> impl Strategy<Value = Sequence> {
    let names = subsequence(NAMES.to_vec(), 1..=3);
    let subscribed = prop::array::uniform3(prop::bool::weighted(0.7));
    let parts = (names, claims, subscribed, vec(scenes, 1..=14));
    parts.prop_map(|(names, claims, subscribed, scenes)| Sequence {
        names,
        claims,
        subscribed,
        steps: scenes.concat(),
    })
}

/// Returns mostly single steps, and scenes that these would rarely produce by chance. They are boxed since
/// the types are large and the stack of a test is small.
fn scenes() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0..3_usize;
    prop_oneof![
        60 => steps().prop_map(|step| vec![step]).boxed(),
        2 => name().prop_flat_map(a_crowd_dies).boxed(),
        5 => name().prop_flat_map(a_free_lock_has_a_line).boxed(),
        2 => name().prop_flat_map(tokens_run_out).boxed(),
        4 => name().prop_flat_map(a_name_is_forgotten).boxed(),
        8 => name().prop_flat_map(a_line_is_served).boxed(),
        4 => name().prop_flat_map(a_holder_ignores_a_request).boxed(),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let name = 0..3_usize;
    let crowd = (name.clone(), 100..=120_u8, Just(Duration::from_secs(5)));
    prop_oneof![
        48 => vec(planned(), 1..=6).prop_map(Step::Batch),
        1 => crowd.prop_map(|(name, count, window)| Step::Crowd(Crowd { name, count, window })),
        4 => (0..CLIENTS, any::<bool>()).prop_map(|(client, on)| Step::Listen(client, on)),
        8 => Just(Step::OutliveNext),
        2 => (1..=30_u64).prop_map(Step::Sleep),
        2 => name.clone().prop_map(Step::Delete),
        2 => name.clone().prop_map(Step::Expire),
        1 => name.clone().prop_map(Step::DeleteLine),
        1 => Just(Step::Flush),
        2 => name.clone().prop_map(Step::CounterAhead),
        2 => name.clone().prop_map(Step::CounterBehind),
        1 => (name, 0..=2_u64).prop_map(|(name, left)| Step::CounterNearEnd(name, left)),
        1 => Just(Step::ForgetScripts),
    ]
}

fn batch_on(name: NameIndex, most: usize) -> impl Strategy<Value = Step> {
    vec(planned_on(name), 1..=most).prop_map(Step::Batch)
}

fn ends_on(name: NameIndex) -> impl Strategy<Value = Step> {
    vec(freeing_on(name), 1..=2).prop_map(Step::Batch)
}

/// More waiters die in line than one operation handles, with or without others behind them.
fn a_crowd_dies(name: NameIndex) -> impl Strategy<Value = Vec<Step>> {
    let crowd = (prop_oneof![75..=80_u8, 105..=120_u8], 15..=30_u64);
    let meanwhile = vec(waiting_on(name), 0..=3).prop_map(Step::Batch);
    (crowd, meanwhile, ends_on(name)).prop_map(move |((count, window), meanwhile, afterwards)| {
        let window = Duration::from_millis(window);
        let crowd = Crowd {
            name,
            count,
            window,
        };
        vec![Step::Crowd(crowd), meanwhile, Step::OutliveNext, afterwards]
    })
}

/// Waiters get the lock one after the other, each in a call of its own.
fn a_line_is_served(name: NameIndex) -> impl Strategy<Value = Vec<Step>> {
    let lined_up = vec(waiting_on(name), 1..=5).prop_map(Step::Batch);
    let one = vec(handing_on(name), 1).prop_map(Step::Batch);
    (lined_up, vec(one, 1..=4)).prop_map(|(lined_up, served)| [vec![lined_up], served].concat())
}

/// A holder is asked to yield, and goes on past the time of the request.
fn a_holder_ignores_a_request(name: NameIndex) -> impl Strategy<Value = Vec<Step>> {
    let batch = vec(wanting_on(name), 2..=5).prop_map(Step::Batch);
    (waiting_on(name), batch.clone(), batch).prop_map(|(taken, first, then)| {
        let taken = Step::Batch(vec![taken]);
        vec![taken, first, Step::OutliveNext, then]
    })
}

/// The lock is deleted, and the waiters may die before another client comes.
fn a_free_lock_has_a_line(name: NameIndex) -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![Just(Step::Sleep(0)), Just(Step::OutliveNext)];
    let brief = (2..=4_u8).prop_map(move |count| {
        Step::Crowd(Crowd {
            name,
            count,
            window: Duration::from_millis(20),
        })
    });
    let lined_up = vec(waiting_on(name), 0..=4).prop_map(Step::Batch);
    let lined_up = (prop::option::weighted(0.4, brief), lined_up);
    let afterwards = prop_oneof![batch_on(name, 3), ends_on(name)];
    (lined_up, pause, afterwards).prop_map(move |((brief, lined_up), pause, afterwards)| {
        let then = [lined_up, Step::Delete(name), pause, afterwards];
        brief.into_iter().chain(then).collect()
    })
}

/// Clients want a lock that has no token left.
fn tokens_run_out(name: NameIndex) -> impl Strategy<Value = Vec<Step>> {
    (0..=2_u64, batch_on(name, 5), batch_on(name, 3))
        .prop_map(move |(left, first, then)| vec![Step::CounterNearEnd(name, left), first, then])
}

/// A lock expires soon after it was taken, its last token is soon forgotten, and clients come then.
fn a_name_is_forgotten(name: NameIndex) -> impl Strategy<Value = Vec<Step>> {
    let afterwards = (prop::option::of(ends_on(name)), batch_on(name, 2));
    (brief_on(name), afterwards).prop_map(move |(brief, (end, then))| {
        let taken = [Step::Flush, Step::Batch(vec![brief]), Step::OutliveNext];
        let forgotten = [Step::OutliveNext, then];
        taken.into_iter().chain(end).chain(forgotten).collect()
    })
}
