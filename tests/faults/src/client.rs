//! A client in Rust: a process that acquires locks and writes under them, again and again.

use std::future::Future;
use std::io::{self, Read};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{Error, Locker};
use leasehold_tests::Random;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::history::{Event, Kind, Outcome, Recorder, now};
use crate::store::{Answer, StoreClient};
use crate::usage::{Held, Use};

/// The time to live of locks.
pub const TTL: Duration = Duration::from_millis(1_500);
/// The longest time to live on a quorum: a server that forgot does not vote for a little longer than this.
pub const LONGEST_TTL: Duration = Duration::from_millis(2_500);
/// How long an acquisition waits.
pub const WAIT: Duration = Duration::from_secs(3);
/// How long one attempt waits for a server.
pub const TIMEOUT: Duration = Duration::from_millis(300);
/// How long a call keeps trying.
pub const PATIENCE: Duration = Duration::from_millis(1_500);
/// How long a client may take to finish its turn.
const ORPHAN_LIMIT: Duration = Duration::from_secs(40);
/// How often a client looks at its lease.
const LOOK: Duration = Duration::from_millis(10);
/// A look is recorded if the last one was this long ago.
const RECORD: u64 = 50_000_000;

/// The settings of a client process, which it gets as JSON. `client.mjs` reads the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The process, such as `rust-0.2`.
    pub client: String,
    /// The URL of the store of locks, or several for a quorum.
    pub urls: Vec<String>,
    /// The loopback port of the guarded store.
    pub store: u16,
    /// The names of the locks.
    pub names: Vec<String>,
    /// The use of the names.
    pub usage: Use,
    /// The namespace of the names.
    pub namespace: String,
    /// The file of its history.
    pub history: PathBuf,
    /// The seed of its choices.
    pub seed: u64,
    /// How many workers it has.
    pub workers: u64,
    /// The time to live in milliseconds.
    pub ttl: u64,
    /// [`LONGEST_TTL`] in milliseconds.
    pub longest: u64,
    /// [`WAIT`] in milliseconds.
    pub wait: u64,
    /// [`TIMEOUT`] in milliseconds.
    pub timeout: u64,
    /// [`PATIENCE`] in milliseconds.
    pub patience: u64,
}

/// Returns a locker as the clients have.
pub async fn locker(urls: &[String], namespace: &str) -> Result<Locker, Error> {
    let builder = Locker::builder()
        .namespace(namespace)
        .command_timeout(TIMEOUT)
        .patience(PATIENCE)
        .longest_ttl(LONGEST_TTL);
    match urls {
        [one] => builder.connect(one).await,
        several => builder.quorum(several).await,
    }
}

/// Runs a client until its standard input ends.
pub async fn run(settings: Settings) -> io::Result<()> {
    let over = Arc::new(AtomicBool::new(false));
    let told = over.clone();
    std::thread::spawn(move || {
        // Standard input also ends when the parent does.
        let _ = io::stdin().read(&mut [0]);
        told.store(true, Ordering::Relaxed);
        // Also if a worker hangs: nobody else would end this process.
        std::thread::sleep(ORPHAN_LIMIT);
        std::process::exit(1);
    });
    let locker = loop {
        match locker(&settings.urls, &settings.namespace).await {
            Ok(locker) => break locker,
            Err(_) if over.load(Ordering::Relaxed) => return Ok(()),
            Err(_) => sleep(LOOK * 10).await,
        }
    };
    let mut workers = Vec::new();
    for number in 0..settings.workers {
        let client = format!("{}/{number}", settings.client);
        let worker = Worker {
            recorder: Recorder::open(&settings.history, client)?,
            store: StoreClient::new(settings.store),
            random: Random::new(settings.seed.wrapping_add(number)),
            usage: settings.usage,
        };
        let (locker, names, over) = (locker.clone(), settings.names.clone(), over.clone());
        workers.push(tokio::spawn(worker.work(locker, names, over)));
    }
    for worker in workers {
        worker.await.map_err(io::Error::other)?;
    }
    locker.shutdown().await;
    Ok(())
}

/// Returns how long to hold a lease. Some are held for longer than an outage may last: one lock in eight, and fewer
/// shared names, for which more clients wait.
pub fn hold_time(usage: Use, random: &mut Random) -> Duration {
    let long = if usage == Use::Locks { 12 } else { 5 };
    Duration::from_millis(if random.chance(long) {
        random.between(300, 2_500)
    } else {
        random.between(5, 60)
    })
}

struct Worker {
    recorder: Recorder,
    store: StoreClient,
    random: Random,
    usage: Use,
}

impl Worker {
    async fn work(mut self, locker: Locker, names: Vec<String>, over: Arc<AtomicBool>) {
        while !over.load(Ordering::Relaxed) {
            let at = usize::try_from(self.random.below(names.len() as u64)).unwrap_or(0);
            self.turn(&locker, &names[at]).await;
            sleep(Duration::from_millis(self.random.between(0, 20))).await;
        }
    }

    /// Acquires a name, writes under it unless it is a reader's, and releases it.
    async fn turn(&mut self, locker: &Locker, name: &str) {
        self.recorder.call(Kind::Acquire, name, None, None);
        let lease = match self.acquire(locker, name).await {
            Ok(Some(lease)) => lease,
            Ok(None) => {
                return self
                    .recorder
                    .back(Kind::Acquire, name, Outcome::None, |_| ());
            }
            Err(error) => return self.failed(Kind::Acquire, name, &error),
        };
        let (name, token) = (lease.resource(), lease.token().get());
        acquired(&mut self.recorder, &lease);
        let hold = hold_time(self.usage, &mut self.random);
        let last = if lease.reads() {
            Kind::Read
        } else {
            Kind::Write
        };
        let mut looks = Looks::new(&lease, &name, token);
        looks.look(&mut self.recorder);
        ask(&mut looks, &mut self.recorder, &mut self.store, Kind::Read).await;
        looks.during(&mut self.recorder, sleep(hold)).await;
        ask(&mut looks, &mut self.recorder, &mut self.store, last).await;
        let writes = last == Kind::Write;
        self.recorder.call(Kind::Release, &name, Some(token), None);
        match lease.release().await {
            Ok(()) => self
                .recorder
                .back(Kind::Release, &name, Outcome::Ok, |_| ()),
            Err(error) => self.failed(Kind::Release, &name, &error),
        }
        // A write that comes too late. The store may take it only until it has seen a later token.
        if writes && self.random.chance(10) {
            sleep(Duration::from_millis(self.random.between(0, 40))).await;
            let value = self.recorder.value();
            self.recorder
                .call(Kind::Write, &name, Some(token), Some(value.clone()));
            let answer = self
                .store
                .ask(&format!("write {name} {token} {value}"))
                .await;
            answered(&mut self.recorder, Kind::Write, &name, token, answer);
        }
    }

    async fn acquire(&mut self, locker: &Locker, name: &str) -> Result<Option<Held>, Error> {
        let wait = self.usage.wait(&mut self.random);
        let reads = self.random.chance(75);
        self.usage.acquire(locker, name, reads, wait).await
    }

    fn failed(&mut self, kind: Kind, name: &str, error: &Error) {
        let text = error.to_string();
        self.recorder.back(kind, name, Outcome::Failed, |entry| {
            entry.text = Some(text);
        });
    }
}

/// Records that an acquisition returned this lease.
pub(crate) fn acquired(recorder: &mut Recorder, lease: &Held) {
    recorder.back(Kind::Acquire, &lease.resource(), Outcome::Ok, |entry| {
        entry.token = Some(lease.token().get());
        entry.reads = lease.reads();
        entry.generation = lease.generation();
    });
}

/// Asks the store under a lease, and looks at the lease meanwhile.
async fn ask(looks: &mut Looks<'_>, recorder: &mut Recorder, store: &mut StoreClient, kind: Kind) {
    let name = looks.name;
    // Without a writer there is nothing to read.
    let Some(token) = looks.lease.fence() else {
        return;
    };
    let value = (kind == Kind::Write).then(|| recorder.value());
    let request = match &value {
        Some(value) => format!("write {name} {token} {value}"),
        None => format!("read {name} {token}"),
    };
    recorder.call(kind, name, Some(token), value);
    let answer = looks.during(recorder, store.ask(&request)).await;
    answered(recorder, kind, name, token, answer);
}

/// Records the answer of the store.
pub(crate) fn answered(
    recorder: &mut Recorder,
    kind: Kind,
    name: &str,
    token: u64,
    answer: io::Result<Answer>,
) {
    let (outcome, value, text) = match answer {
        Ok(Answer::Done(value)) => (Outcome::Ok, Some(value), None),
        Ok(Answer::Stale) => (Outcome::Stale, None, None),
        Err(error) => (Outcome::Failed, None, Some(error.to_string())),
    };
    recorder.back(kind, name, outcome, |entry| {
        entry.token = Some(token);
        entry.value = value.filter(|_| kind == Kind::Read);
        entry.text = text;
    });
}

/// The looks of a client at its lease.
struct Looks<'a> {
    lease: &'a Held,
    name: &'a str,
    token: u64,
    /// The latest look, and the longest time between two looks since the lease was last valid.
    last: u64,
    gap: u64,
    /// The latest recorded look.
    recorded: u64,
    /// The deadline, as the latest look that found the lease valid saw it.
    deadline: u64,
    told: bool,
}

impl<'a> Looks<'a> {
    fn new(lease: &'a Held, name: &'a str, token: u64) -> Self {
        Self {
            lease,
            name,
            token,
            last: now(),
            gap: 0,
            recorded: 0,
            deadline: u64::MAX,
            told: false,
        }
    }

    /// Records that the lease is valid, if it says so.
    fn look(&mut self, recorder: &mut Recorder) {
        let at = now();
        self.gap = self.gap.max(at - self.last);
        if self.lease.is_valid() {
            self.gap = 0;
            let left = u64::try_from(self.lease.remaining().as_nanos()).unwrap_or(u64::MAX);
            self.deadline = now().saturating_add(left);
            if at - self.recorded >= RECORD {
                self.recorded = at;
                let mut entry = recorder.entry(Event::Valid, self.name);
                entry.at = at;
                entry.token = Some(self.token);
                recorder.record(&entry);
            }
        }
        self.last = at;
    }

    /// Looks at the lease while this work is done, and records its loss.
    async fn during<T>(&mut self, recorder: &mut Recorder, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let lease = self.lease;
        loop {
            tokio::select! {
                biased;
                lost = lease.lost(), if !self.told => {
                    self.told = true;
                    let mut entry = recorder.entry(Event::Lost, self.name);
                    entry.token = Some(self.token);
                    entry.text = Some(lost.reason.to_string());
                    entry.late = Some(i64::try_from(entry.at).unwrap_or(0) - i64::try_from(self.deadline).unwrap_or(i64::MAX));
                    entry.unseen = Some(self.gap.max(entry.at - self.last));
                    recorder.record(&entry);
                }
                done = &mut work => {
                    self.look(recorder);
                    return done;
                }
                () = sleep(LOOK) => self.look(recorder),
            }
        }
    }
}
