//! Jobs: random sequences of claims, completions and other operations on two names, on the real server and on
//! the model, as a [`Pair`] compares them.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_engine::protocol::{
    Accept, Acquire, Claim, Command, Counter, ForceRelease, LeaseId, LockKey, Reclaim, Release,
    Renew, Reply,
};
use leasehold_engine::{FencingToken, Owner, Tick};

use crate::pair::{LONG, Pair, Random, SHORT};
use crate::samples::{inspect, key};
use crate::sequence::client;

const SEQUENCES: u64 = 80;
const STEPS: usize = 60;

/// The outcomes that the generated sequences must reach, each at least once.
const OUTCOMES: [&str; 20] = [
    "accept refused: a job, not for a lock",
    "acquire busy",
    "acquire completed",
    "acquire held",
    "acquire refused: a job, not for a lock",
    "acquire refused: a lock, not for a job",
    "complete completed",
    "complete gone",
    "complete handed over",
    "complete released",
    "complete taken",
    "force-release released",
    "inspect begun",
    "inspect completed",
    "inspect held",
    "pushed completed",
    "pushed granted",
    "release handed over",
    "release released",
    "renew renewed",
];

/// The claim of a lease. A lease number stands for one client, one time to live and, at a job, one tick.
fn claim(number: u64, tick: Option<u64>) -> Claim {
    let owner = match tick {
        Some(tick) => {
            Tick::new(tick).and_then(|tick| Owner::runner(format!("runner {number}"), tick))
        }
        None => Owner::reclaimable("someone"),
    };
    let short = number % 4 == 3;
    Claim {
        lease: LeaseId(u128::from(number * 100 + tick.unwrap_or(99)) << 64 | 7),
        client: client(usize::try_from(number % 2).expect("a small number")),
        owner: owner.expect("a short label is valid"),
        counter: Counter::ClockFloor {
            retention: LONG * 100,
        },
        ttl: if short { SHORT } else { LONG },
        window: if short {
            SHORT
        } else {
            Duration::from_secs(60)
        },
    }
}

async fn holder(pair: &mut Pair, key: &LockKey) -> Option<(LeaseId, FencingToken)> {
    let now = pair.real.time().await;
    let tenure = pair.model.tenure(now, key)?;
    Some((tenure.lease, tenure.token))
}

/// Returns a random operation, and true if it is over before the next step.
async fn command(pair: &mut Pair, random: &mut Random, tokens: &[FencingToken]) -> (Command, bool) {
    let key = key(["one", "two"][usize::from(random.below(8) == 0)]);
    let (number, tick) = (random.below(6), 1 + random.below(9));
    let tick = Some(tick).filter(|_| random.below(30) > 0);
    let claim = claim(number, tick);
    let holder = holder(pair, &key).await;
    let stale = tokens
        .get(usize::try_from(random.below(12)).unwrap_or(0))
        .copied();
    let (mut lease, mut token) = (claim.lease, stale.unwrap_or(FencingToken::MAX));
    if let Some(held) = holder.filter(|_| random.below(6) > 0) {
        (lease, token) = held;
    }
    let now = pair.real.time().await;
    let tenure = pair.model.tenure(now, &key);
    let running = tenure.map(|tenure| tenure.owner.clone());
    let running = running.filter(|_| random.below(9) > 0);
    let is_short = claim.ttl == SHORT;
    let command = match random.below(20) {
        0..9 => Command::Acquire(Acquire {
            key,
            claim,
            waits: random.below(4) > 0,
            reclaims: Reclaim::Ask,
        }),
        below @ 9..15 => {
            let token = Some(token).filter(|_| below.is_multiple_of(2));
            let owner = running.unwrap_or_else(|| claim.owner.clone());
            let claim = Claim {
                lease,
                owner,
                ..claim
            };
            let completes = below < 13 && claim.owner.tick().is_some();
            Command::Release(Release {
                key,
                claim,
                token,
                completes,
            })
        }
        15 => Command::ForceRelease(ForceRelease { key, token }),
        16 => Command::Renew(Renew {
            key,
            lease,
            token,
            counter: claim.counter,
            ttl: LONG * 2,
            floor: None,
        }),
        17 => Command::Accept(Accept {
            key,
            lease,
            token,
            claim,
        }),
        _ => inspect(&key),
    };
    let is_over = is_short && matches!(command, Command::Acquire(_) | Command::Accept(_));
    (command, is_over)
}

/// Catches a script or a model that gives a completed tick again, hands a turn to a waiter whose tick is over,
/// or forgets to tell that waiter.
#[tokio::test]
async fn the_script_and_the_model_do_the_same_with_jobs() {
    let mut pair = Pair::start().await;
    for sequence in 0..SEQUENCES {
        pair.clear().await;
        let (mut random, mut tokens) = (Random(sequence), Vec::new());
        let mut completed = BTreeMap::<String, u64>::new();
        for number in 0..STEPS {
            let (command, is_over) = command(&mut pair, &mut random, &tokens).await;
            let step = format!("sequence {sequence}, step {number}, {command:?}");
            let reply = pair.step(command.clone(), &step).await;
            if let (Ok(Reply::Held(grant)), Command::Acquire(acquire)) = (&reply, &command) {
                let done = completed.get(acquire.key.lock()).copied().unwrap_or(0);
                assert!(
                    acquire.claim.owner.tick().is_none_or(|tick| tick > done),
                    "{step}"
                );
                tokens.insert(0, grant.token);
            }
            if let Command::Release(release) = &command {
                let key = release.key.clone();
                if let Ok(Reply::Inspected(seen)) = pair.step(inspect(&key), &step).await
                    && let Some(done) = seen.job.and_then(|job| job.completed)
                {
                    let before = completed.insert(key.lock().to_owned(), done.tick.get());
                    assert!(
                        before.is_none_or(|before| before <= done.tick.get()),
                        "{step}"
                    );
                }
            }
            if is_over {
                tokio::time::sleep(SHORT * 2).await;
            }
        }
    }
    let missed: Vec<_> = OUTCOMES
        .iter()
        .filter(|outcome| !pair.outcomes.contains_key(**outcome))
        .collect();
    assert!(
        missed.is_empty(),
        "not reached: {missed:?}; reached: {:#?}",
        pair.outcomes
    );
}
