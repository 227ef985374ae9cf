//! Shared names: random sequences of admissions, renewals, departures and resizes on two names, on the real server
//! and on the model, as a [`Pair`] compares them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_engine::protocol::{
    Acquire, Admission, Admit, Claim, Command, Counter, Extend, ForceRelease, Grant, LeaseId,
    LockKey, Op, Reclaim, Release, Renew, Reply, Resize, Vacate,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{FencingToken, Owner, Share, Sharing};

use crate::pair::{LONG, Pair, Random, SHORT};
use crate::samples::{self, acquire, inspect, key};
use crate::sequence::client;

const SEQUENCES: u64 = 120;
const STEPS: usize = 60;
const COUNTER: Counter = Counter::ClockFloor {
    retention: Duration::from_secs(60_000),
};

/// The outcomes that the generated sequences must reach, each at least once.
const OUTCOMES: [&str; 24] = [
    "acquire refused: a quota, not for a lock or a job",
    "acquire refused: a semaphore, not for a lock or a job",
    "acquire refused: readers and writers, not for a lock or a job",
    "admit admitted",
    "admit busy",
    "admit excess",
    "admit refused: a lock or a job, not for a semaphore",
    "admit refused: a quota, not for a semaphore",
    "extend gone",
    "extend refused: a quota, not for readers and writers",
    "extend refused: a semaphore, not for readers and writers",
    "extend renewed",
    "force-release gone",
    "force-release released",
    "inspect shared",
    "renew refused: a semaphore, not for a lock or a job",
    "pushed completed",
    "pushed granted",
    "resize refused: a semaphore, not for a quota",
    "resize resized",
    "vacate gone",
    "vacate handed over",
    "vacate refused: readers and writers, not for a quota",
    "vacate released",
];

/// What a sequence knows of a name's permits.
#[derive(Default)]
struct Known {
    permits: BTreeMap<LeaseId, (Claim, Grant)>,
    tokens: BTreeSet<FencingToken>,
    /// The last token of each slot.
    of_slots: BTreeMap<u16, FencingToken>,
}

/// Returns a random share of the kind that most claims of the sequence have.
fn share(random: &mut Random, sequence: u64) -> Share {
    let other = u64::from(random.below(25) == 0);
    let weight = |random: &mut Random, most| u32::try_from(1 + random.below(most)).expect("small");
    let share = match (sequence + other) % 3 {
        0 => Share::slots(weight(random, 3), 4),
        1 => Share::units(weight(random, 9), 10),
        _ if random.below(3) == 0 => Ok(Share::writer()),
        _ => Ok(Share::reader()),
    };
    share.expect("a share within the bounds")
}

fn is_writer((claim, _): &(Claim, Grant)) -> bool {
    claim.owner.share().is_some_and(Share::is_writer)
}

fn claim(random: &mut Random, sequence: u64) -> Claim {
    let number = random.below(9);
    let short = number % 4 == 3;
    let share = share(random, sequence);
    Claim {
        lease: LeaseId(u128::from(number * 1_000 + u64::from(share.weight() % 97)) << 64 | 7),
        client: client(usize::try_from(number % 3).expect("a small number")),
        owner: Owner::sharing("someone", share).expect("a short label is valid"),
        counter: COUNTER,
        ttl: if short { SHORT } else { LONG },
        window: if short {
            SHORT
        } else {
            Duration::from_secs(60)
        },
    }
}

/// Returns a random operation, and true if its lease is over before the next step.
fn command(random: &mut Random, known: &Known, sequence: u64) -> (Command, bool) {
    let key = key(["one", "two"][usize::from(random.below(9) == 0)]);
    let claim = claim(random, sequence);
    let held = known
        .permits
        .values()
        .nth(usize::try_from(random.below(5)).expect("small"));
    let held = held.filter(|_| random.below(9) > 0).cloned();
    let is_short = claim.ttl == SHORT;
    let writes = held.as_ref().is_some_and(is_writer);
    let (acquire, command) = (acquire(&key, 1, COUNTER), random.below(42));
    let command = match command {
        // Few writers hold the name, so they would rarely become readers.
        0..20 if writes && random.below(2) == 0 => 30,
        command => command,
    };
    let command = match command {
        0..20 => Command::Admit(Admit(Acquire {
            key,
            claim,
            waits: random.below(5) > 0,
            reclaims: Reclaim::Never,
        })),
        20..30 => {
            let (claim, token) =
                held.map_or((claim, None), |(claim, grant)| (claim, Some(grant.token)));
            let completes = false;
            Command::Vacate(Vacate(Release {
                key,
                claim,
                token,
                completes,
            }))
        }
        30..34 => {
            let (lease, token) = held.map_or((claim.lease, FencingToken::MAX), |(claim, grant)| {
                (claim.lease, grant.token)
            });
            let ttl = LONG * 2;
            let renew = Renew {
                key,
                lease,
                token,
                counter: COUNTER,
                ttl,
                floor: None,
            };
            Command::Extend(Extend {
                renew,
                reads: writes || random.below(3) == 0,
            })
        }
        34..37 => {
            let share = share(random, sequence);
            let capacity = match share.sharing() {
                Sharing::Slots => 1 + random.below(6),
                Sharing::Units => 3 + random.below(12),
                Sharing::Access => 1_000_000_000,
            };
            Command::Resize(Resize {
                key,
                sharing: share.sharing(),
                capacity: u32::try_from(capacity).expect("small"),
                counter: COUNTER,
            })
        }
        37 => Command::Acquire(acquire),
        38 => Command::Renew(Renew {
            key,
            lease: claim.lease,
            token: FencingToken::MAX,
            counter: COUNTER,
            ttl: LONG,
            floor: None,
        }),
        39 => Command::ForceRelease(ForceRelease {
            key,
            token: held.map_or(FencingToken::MAX, |(_, grant)| grant.token),
        }),
        _ => inspect(&key),
    };
    (command, is_short)
}

impl Known {
    /// Checks that an admission has a token of its own, which is greater than all earlier ones of its slots.
    fn admitted(&mut self, claim: &Claim, (grant, admission): (Grant, Admission), step: &str) {
        let before = self.permits.insert(claim.lease, (claim.clone(), grant));
        if before.is_some_and(|(_, before)| before.token == grant.token) {
            return;
        }
        assert!(self.tokens.insert(grant.token), "{step}: a token twice");
        for slot in admission.slots {
            let before = self.of_slots.insert(slot, grant.token);
            let grows = before.is_none_or(|before| before < grant.token);
            assert!(grows, "{step}: the token of the slot {slot}");
        }
    }
}

/// Catches a permit that is admitted by a resize, and does not set the expiry of the keys: the last token is marked
/// then, because it does not tell when that was set.
#[tokio::test]
async fn a_permit_that_a_resize_admits_sets_the_expiry_of_the_keys() {
    let mut pair = Pair::start().await;
    let key = key("one");
    let admit = |lease, weight| {
        let share = Share::slots(weight, 4).expect("a share within the bounds");
        let waits = true;
        Command::Admit(Admit(Acquire {
            waits,
            ..samples::admit(&key, lease, (COUNTER, share))
        }))
    };
    for (lease, weight) in [(1, 4), (2, 3)] {
        let reply = pair.step(admit(lease, weight), "admit").await;
        assert_eq!(matches!(reply, Ok(Reply::Admitted(..))), lease == 1);
    }
    // Longer than the times of both may differ.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let resize = Command::Resize(Resize {
        key: key.clone(),
        sharing: Sharing::Slots,
        capacity: 8,
        counter: COUNTER,
    });
    let resized = pair.step(resize, "resize").await;
    assert!(matches!(resized, Ok(Reply::Resized { .. })), "{resized:?}");
    let reply = pair.step(admit(2, 3), "admit again").await;
    assert!(matches!(reply, Ok(Reply::Admitted(..))), "{reply:?}");
}

/// Catches a script or a model that admits too many, gives a slot twice, forgets a slot, or lets a waiter overtake.
#[tokio::test]
async fn the_script_and_the_model_do_the_same_with_shared_names() {
    let (mut pair, mut downgrades) = (Pair::start().await, 0);
    for sequence in 0..SEQUENCES {
        pair.clear().await;
        let (mut random, mut known) = (Random(sequence), BTreeMap::<String, Known>::new());
        for number in 0..STEPS {
            let name = key("one");
            let of_one = known.entry(name.lock().to_owned()).or_default();
            let (command, is_short) = command(&mut random, of_one, sequence);
            let step = format!("sequence {sequence}, step {number}, {command:?}");
            let reply = pair.step(command.clone(), &step).await;
            let key = command.key().expect("all commands have a key").clone();
            let known = known.entry(key.lock().to_owned()).or_default();
            match (&command, reply) {
                (Command::Admit(Admit(acquire)), Ok(Reply::Admitted(grant, admission)))
                    if !is_short =>
                {
                    known.admitted(&acquire.claim, (grant, admission), &step);
                }
                (Command::Vacate(Vacate(release)), Ok(_)) => {
                    known.permits.remove(&release.claim.lease);
                }
                (Command::Extend(Extend { renew, reads: true }), Ok(Reply::Renewed { .. })) => {
                    let held = known.permits.get(&renew.lease);
                    downgrades += u32::from(held.is_some_and(is_writer));
                }
                _ => {}
            }
            if is_short && matches!(command, Command::Admit(_)) {
                tokio::time::sleep(SHORT * 2).await;
            }
            check(&mut pair, &key, &step).await;
            if random.below(150) == 0 {
                let lost = [name.lock().to_owned(), name.holders()];
                let lost = &lost[usize::from(random.below(2) == 0)];
                pair.lose(&name, lost).await;
                known.permits.clear();
            }
        }
    }
    assert!(downgrades > 20, "{downgrades} writers became readers");
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

/// Checks what the server holds: as much as it counts, and no slot twice.
async fn check(pair: &mut Pair, name: &LockKey, step: &str) {
    let dump = pair.real.dump().await.keys;
    let (Some(hash), Some(holders)) = (dump.get(name.lock()), dump.get(&name.holders())) else {
        return;
    };
    // Holders that outlive a deleted hash count no more.
    if !hash.value.lines().any(|line| line.starts_with("s ")) {
        return;
    }
    let mut members = BTreeMap::new();
    for line in holders.value.lines() {
        let (score, member) = line.split_once(' ').expect("a score and a member");
        members.insert(member, score.parse::<i64>().expect("a number"));
    }
    let (mut used, mut slots) = (0, BTreeSet::new());
    for line in hash.value.lines() {
        let (field, value) = line.split_once(' ').expect("a field and its value");
        if field.len() == 32 {
            let weight: usize = value[32..42].parse().expect("a weight");
            used += i64::try_from(weight).expect("a small weight");
            let slotted = hash.value.lines().any(|line| line.starts_with("s s"));
            for slot in 0..if slotted { weight } else { 0 } {
                let slot = &value[42 + 4 * slot..46 + 4 * slot];
                assert!(
                    slots.insert(slot.to_owned()),
                    "{step}: the slot {slot} has two holders"
                );
                assert!(
                    !members.contains_key(slot),
                    "{step}: the slot {slot} is free and has a holder"
                );
            }
            assert!(
                members.contains_key(field),
                "{step}: {field} is not among the holders"
            );
        }
    }
    assert_eq!(
        members.get("u"),
        Some(&-used),
        "{step}: it counts the units that are held"
    );
}

/// Catches a release of a permit that is refused because it comes late, alone or together with a lock's release, and
/// a late batch of which something is done.
#[tokio::test]
async fn only_releases_are_done_however_late() {
    let mut pair = Pair::start().await;
    let mut random = Random(1);
    let late = |command| Op {
        command,
        not_after: ServerTime::from_micros(1),
    };
    let claim = Claim {
        ttl: LONG,
        ..claim(&mut random, 0)
    };
    let (shared, lock) = (key("one"), key("two"));
    let acquire = acquire(&lock, 1, COUNTER);
    let admit = Admit(Acquire {
        key: shared.clone(),
        claim: claim.clone(),
        waits: false,
        reclaims: Reclaim::Never,
    });
    let release = |key: &LockKey, claim: &Claim| Release {
        key: key.clone(),
        claim: claim.clone(),
        token: None,
        completes: false,
    };
    let vacate = late(Command::Vacate(Vacate(release(&shared, &claim))));
    let release = late(Command::Release(release(&lock, &acquire.claim)));
    let with_others = vec![vacate.clone(), late(inspect(&lock))];
    let batches = [
        (with_others, Reply::Late),
        (vec![vacate.clone()], Reply::Released),
        (vec![release.clone(), vacate.clone()], Reply::Released),
        (vec![vacate, release], Reply::Released),
    ];
    for (batch, expected) in batches {
        for command in [
            Command::Admit(admit.clone()),
            Command::Acquire(acquire.clone()),
        ] {
            let taken = pair.step(command, "taking").await;
            assert!(
                matches!(taken, Ok(Reply::Admitted(..) | Reply::Held(_))),
                "{taken:?}"
            );
        }
        let real = pair.real.run(&batch).await.expect("a reply");
        let now = real.time.expect("one of them reads the clock");
        assert_eq!(real, pair.model.execute(now, &batch), "{batch:?}");
        assert_eq!(real.replies, vec![Ok(expected); batch.len()], "{batch:?}");
        pair.clear().await;
    }
}
