//! Jobs: random sequences of claims, completions and other operations on two names, on the real server and on
//! the model. After each step both must have given the same replies and pushes and hold the same keys.
//!
//! Times are long, or so short that they have ended before the next step. So no expiry is close to a step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_engine::protocol::{
    Accept, Acquire, Claim, ClientId, Command, Counter, ForceRelease, LeaseId, LockKey, Reclaim,
    Release, Renew, Reply,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{Error, ErrorKind, FencingToken, MemoryServer, Owner, Tick};

use crate::real::{Listener, Real};
use crate::samples::{batch, inspect, key};
use crate::sequence::client;

const SEQUENCES: u64 = 80;
const STEPS: usize = 60;
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(20);

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

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

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

struct Run {
    real: Real,
    listeners: Vec<Listener>,
    model: MemoryServer,
    clients: BTreeSet<ClientId>,
    outcomes: BTreeMap<String, u32>,
}

impl Run {
    async fn start() -> Self {
        let real = Real::start().await;
        let clients = BTreeSet::from([client(0), client(1)]);
        let mut listeners = Vec::new();
        for id in &clients {
            let mut listener = Listener::connect(&real.server, *id).await;
            listener.listen(true).await;
            listeners.push(listener);
        }
        let (model, outcomes) = (MemoryServer::new(), BTreeMap::new());
        let mut run = Self {
            real,
            listeners,
            model,
            clients,
            outcomes,
        };
        run.clear().await;
        run
    }

    async fn clear(&mut self) {
        self.real.admin.flushall().await;
        self.model = MemoryServer::new();
        for client in &self.clients {
            self.model.subscribe(*client);
        }
    }

    /// Runs one operation on both, and checks that they agree.
    async fn step(&mut self, command: Command, step: &str) -> Result<Reply, Error> {
        let batch = batch([command.clone()]);
        let real = self.real.run(&batch).await.expect("a reply");
        let now = real.time.unwrap_or(self.real.time().await);
        let model = self.model.execute(now, &batch);
        let (theirs, ours) = (&real.replies[0], &model.replies[0]);
        let is_same = match (theirs, ours) {
            (Err(theirs), Err(ours)) => theirs.kind() == ours.kind(),
            _ => theirs == ours,
        };
        assert!(
            is_same,
            "{step}: the server replied {theirs:?}, the model {ours:?}"
        );
        self.note(&command, theirs);
        self.compare_pushes(step).await;
        let theirs = self.real.dump().await.keys;
        for name in [key("one"), key("two")] {
            let value = self.model.lock_value(now, &name);
            let ours = value.map(|(mut fields, expires)| {
                fields.sort();
                let lines = fields
                    .iter()
                    .map(|(field, value)| format!("{field} {value}\n"));
                (lines.collect::<String>(), expires.map(ServerTime::millis))
            });
            let theirs = theirs.get(name.lock());
            let theirs = theirs.map(|entry| (entry.value.clone(), entry.expires));
            let (theirs, ours) = (theirs.unzip(), ours.unzip());
            assert_eq!(theirs.0, ours.0, "{step}: the hash of {name:?}");
            // Redis counts a key's time from a moment after the script's.
            let apart = theirs
                .1
                .flatten()
                .unwrap_or(0)
                .abs_diff(ours.1.flatten().unwrap_or(0));
            assert!(
                apart < 20,
                "{step}: the expiry of {name:?} differs by {apart} ms"
            );
        }
        real.replies.into_iter().next().expect("one reply")
    }

    async fn compare_pushes(&mut self, step: &str) {
        let mut ours = BTreeMap::<_, Vec<_>>::new();
        for (client, push) in self.model.take_pushes() {
            ours.entry(client).or_default().push(push.to_string());
        }
        for (id, listener) in self.clients.iter().zip(&mut self.listeners) {
            let pushes = listener.pushes().await.expect("pushes");
            let texts: Vec<_> = pushes.iter().map(ToString::to_string).collect();
            assert_eq!(
                texts,
                ours.remove(id).unwrap_or_default(),
                "{step}: the pushes to {id}"
            );
            for text in texts {
                let what = text.split(':').next().unwrap_or_default();
                *self.outcomes.entry(format!("pushed {what}")).or_default() += 1;
            }
        }
    }

    fn note(&mut self, command: &Command, reply: &Result<Reply, Error>) {
        let what = match command {
            Command::Acquire(_) => "acquire",
            Command::Accept(_) => "accept",
            Command::Renew(_) => "renew",
            Command::Release(release) if release.completes => "complete",
            Command::Release(_) => "release",
            Command::ForceRelease(_) => "force-release",
            _ => "inspect",
        };
        let mut outcomes = Vec::new();
        match reply {
            Ok(Reply::Held(_)) => outcomes.push("held".to_owned()),
            Ok(Reply::Reclaimable { .. }) => outcomes.push("reclaimable".to_owned()),
            Ok(Reply::Busy { .. }) => outcomes.push("busy".to_owned()),
            Ok(Reply::Completed) => outcomes.push("completed".to_owned()),
            Ok(Reply::Renewed { .. }) => outcomes.push("renewed".to_owned()),
            Ok(Reply::Released) => outcomes.push("released".to_owned()),
            Ok(Reply::HandedOver { .. }) => outcomes.push("handed over".to_owned()),
            Ok(Reply::Gone) => outcomes.push("gone".to_owned()),
            Ok(Reply::Taken) => outcomes.push("taken".to_owned()),
            Ok(Reply::Inspected(seen)) => {
                let job = seen.job.as_ref();
                let is_completed = job.is_some_and(|job| job.completed.is_some());
                let is_begun = job.is_some_and(|job| job.begun.is_some());
                let all = [("held", seen.holder.is_some()), ("completed", is_completed)];
                let all = all
                    .into_iter()
                    .chain([("begun", is_begun && seen.holder.is_none())]);
                outcomes.extend(all.filter(|(_, is)| *is).map(|(what, _)| what.to_owned()));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
                let text = error.to_string();
                let use_ = text
                    .split("used for ")
                    .nth(1)
                    .and_then(|rest| rest.split(';').next());
                outcomes.push(format!("refused: {}", use_.unwrap_or_default()));
            }
            Ok(other) => panic!("{other:?}"),
        }
        for outcome in outcomes {
            *self
                .outcomes
                .entry(format!("{what} {outcome}"))
                .or_default() += 1;
        }
    }

    async fn holder(&mut self, key: &LockKey) -> Option<(LeaseId, FencingToken)> {
        let now = self.real.time().await;
        let tenure = self.model.tenure(now, key)?;
        Some((tenure.lease, tenure.token))
    }

    /// Returns a random operation, and true if it is over before the next step.
    async fn command(&mut self, random: &mut Random, tokens: &[FencingToken]) -> (Command, bool) {
        let key = key(["one", "two"][usize::from(random.below(8) == 0)]);
        let (number, tick) = (random.below(6), 1 + random.below(9));
        let tick = Some(tick).filter(|_| random.below(30) > 0);
        let claim = claim(number, tick);
        let holder = self.holder(&key).await;
        let stale = tokens
            .get(usize::try_from(random.below(12)).unwrap_or(0))
            .copied();
        let (mut lease, mut token) = (claim.lease, stale.unwrap_or(FencingToken::MAX));
        if let Some(held) = holder.filter(|_| random.below(6) > 0) {
            (lease, token) = held;
        }
        let now = self.real.time().await;
        let tenure = self.model.tenure(now, &key);
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
}

/// Catches a script or a model that gives a completed tick again, hands a turn to a waiter whose tick is over,
/// or forgets to tell that waiter.
#[tokio::test]
async fn the_script_and_the_model_do_the_same_with_jobs() {
    let mut run = Run::start().await;
    for sequence in 0..SEQUENCES {
        run.clear().await;
        let (mut random, mut tokens) = (Random(sequence), Vec::new());
        let mut completed = BTreeMap::<String, u64>::new();
        for number in 0..STEPS {
            let (command, is_over) = run.command(&mut random, &tokens).await;
            let step = format!("sequence {sequence}, step {number}, {command:?}");
            let reply = run.step(command.clone(), &step).await;
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
                if let Ok(Reply::Inspected(seen)) = run.step(inspect(&key), &step).await
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
        .filter(|outcome| !run.outcomes.contains_key(**outcome))
        .collect();
    assert!(
        missed.is_empty(),
        "not reached: {missed:?}; reached: {:#?}",
        run.outcomes
    );
}
