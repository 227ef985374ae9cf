//! Rounds of faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_tests::{Proxy, Random};
use tokio::time::{Instant, timeout};

use crate::checks::{Round, Verdict};
use crate::client::{self, LONGEST_TTL, PATIENCE, Settings, TIMEOUT, TTL, WAIT};
use crate::fault::{self, Fault};
use crate::fleet::{Client, Language, Programs};
use crate::history::{self, Event, Kind, Outcome, Recorder};
use crate::nemesis::Nemesis;
use crate::porcupine::Porcupine;
use crate::report::{self, Shown};
use crate::store::{Store, StoreClient};
use crate::topology::{Servers, Topology, has_faketime};
use crate::usage::Use;

/// The longest round. Each begins with new servers and an empty history, so the judges' work stays small.
const ROUND: Duration = Duration::from_secs(60);
/// The namespace of the names that are judged.
const NAMESPACE: &str = "leasehold";
/// How long a client may take to finish its turn once all faults are over.
const TO_END: Duration = Duration::from_secs(30);
/// How long after the end of all faults each name must be acquirable.
const GHOSTS: Duration = Duration::from_secs(10);
/// The limit that replaces [`GHOSTS`] where sentinels or masters first agree on a primary.
const GHOSTS_OF_FAILOVER: Duration = Duration::from_secs(40);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to inject faults, in all rounds together.
    pub time: Duration,
    /// The seed of all choices of the nemesis.
    pub seed: u64,
    /// The deployments, which take turns.
    pub topologies: Vec<Topology>,
    /// The use of the names.
    pub usage: Use,
    /// False if the store takes every write.
    pub guarded: bool,
    /// True if clients in Node use a namespace of their own, so they do not contend with the others.
    pub divided: bool,
    /// The folder of histories and report.
    pub folder: PathBuf,
    /// The program of this crate, which the clients run.
    pub program: PathBuf,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The number of rounds.
    pub rounds: u64,
    /// The number of faults by kind.
    pub faults: BTreeMap<Fault, u64>,
    /// The number of acquired leases by language.
    pub acquired: BTreeMap<String, u64>,
    /// The number of all recorded operations.
    pub operations: u64,
    /// The number of writes that the store accepted.
    pub accepted: u64,
    /// The number of requests that the store refused.
    pub refused: u64,
    /// Accepted writes that overwrote those of a later holder.
    pub stale_writes: u64,
    /// The losses that clients were told.
    pub losses: u64,
    /// Overlaps of leases after faults that end exclusion.
    pub excused: u64,
    /// The violations that the own checks found, each with its round.
    pub violations: Vec<String>,
    /// The histories that Porcupine refused.
    pub refused_histories: u64,
    /// The histories for which Porcupine's search took too long.
    pub undecided_histories: u64,
}

impl Summary {
    /// Returns true if no judge found a violation.
    pub fn is_ok(&self) -> bool {
        self.violations.is_empty() && self.refused_histories + self.undecided_histories == 0
    }

    fn add(&mut self, number: u64, round: &Round, verdict: &Verdict) {
        self.rounds += 1;
        for fault in &round.faults {
            *self.faults.entry(fault.kind).or_default() += 1;
        }
        for entry in &round.entries {
            self.operations += u64::from(entry.event == Event::Call);
            self.losses += u64::from(entry.event == Event::Lost);
            let is_acquired = entry.event == Event::Return
                && entry.kind == Some(Kind::Acquire)
                && entry.outcome == Some(Outcome::Ok);
            if is_acquired {
                let language = entry.client.split('-').next().unwrap_or_default();
                *self.acquired.entry(language.to_owned()).or_default() += 1;
            }
        }
        for served in &round.served {
            self.accepted += u64::from(served.writes && served.accepted);
            self.refused += u64::from(!served.accepted);
        }
        self.stale_writes += verdict.stale_writes;
        self.excused += verdict.excused;
        let found = verdict.violations.iter();
        self.violations
            .extend(found.map(|text| format!("round {number}: {text}")));
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: u64 = self.faults.values().sum();
        writeln!(f, "{all} faults in {} rounds:", self.rounds)?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {count:>6} {}", kind.name())?;
        }
        let leases: u64 = self.acquired.values().sum();
        let languages: Vec<_> = self
            .acquired
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        writeln!(
            f,
            "{leases} leases ({}), {} operations",
            languages.join(", "),
            self.operations
        )?;
        writeln!(
            f,
            "{} writes accepted, {} requests refused as stale, {} losses told",
            self.accepted, self.refused, self.losses
        )?;
        writeln!(
            f,
            "{} overlaps of leases after faults that end exclusion",
            self.excused
        )?;
        writeln!(
            f,
            "{} lost writes: accepted from a holder after a later one",
            self.stale_writes
        )?;
        for text in self.violations.iter().take(20) {
            writeln!(f, "VIOLATION in {text}")?;
        }
        writeln!(
            f,
            "own checks: {} violations; Porcupine: {} of {} histories refused, {} undecided",
            self.violations.len(),
            self.refused_histories,
            self.rounds,
            self.undecided_histories
        )
    }
}

/// Runs rounds of faults and judges each. The folder has the histories of each round, and a report of all.
pub async fn run(options: &Options) -> io::Result<Summary> {
    if options.usage != Use::Locks && options.topologies != [Topology::One] {
        return Err(io::Error::other(format!(
            "{} is only judged on one server: give `--topology one`",
            options.usage
        )));
    }
    let programs = Programs::find(&options.program)?;
    let porcupine = Porcupine::build(&options.folder)?;
    if !has_faketime() {
        println!(
            "== faults: NOT RUN: steps and slews of clocks; install libfaketime (Debian: faketime)"
        );
    }
    let mut summary = Summary::default();
    let mut shown = Vec::new();
    let mut left = options.time;
    for number in 1.. {
        if left.is_zero() {
            break;
        }
        // A short last round would test little.
        let time = if left < ROUND * 3 / 2 { left } else { ROUND };
        left -= time;
        let place = usize::try_from(number - 1).unwrap_or(0) % options.topologies.len();
        let topology = options.topologies[place];
        let seed = options.seed.wrapping_add(number - 1);
        println!(
            "== faults: round {number}: {topology}, seed {seed}, {} s",
            time.as_secs()
        );
        let folder = options.folder.join(format!("round-{number}"));
        let played = play(topology, (seed, time), &folder, &programs, options).await?;
        let mut verdict = played.round.judge();
        verdict.violations.extend(played.violations);
        let judged = porcupine.judge(
            &folder.join("history.jsonl"),
            &folder.join("porcupine.html"),
        )?;
        summary.add(number, &played.round, &verdict);
        summary.refused_histories += u64::from(judged.is_refused);
        summary.undecided_histories += u64::from(!judged.is_ok && !judged.is_refused);
        let result = format!(
            "{} faults, {} leases, {} violations; Porcupine: {}",
            played.round.faults.len(),
            played.round.leases().len(),
            verdict.violations.len(),
            judged.lines.join(", ")
        );
        println!("== faults: round {number}: {result}");
        shown.push(Shown::new(number, &played.round, seed, result, &verdict));
        report::write(
            &options.folder.join("report.html"),
            &summary.to_string(),
            &shown,
        )?;
    }
    print!("{summary}");
    println!("report: {}", options.folder.join("report.html").display());
    Ok(summary)
}

struct Played {
    round: Round,
    /// The violations that the end of the round has shown.
    violations: Vec<String>,
}

async fn play(
    topology: Topology,
    (seed, time): (u64, Duration),
    folder: &Path,
    programs: &Programs,
    options: &Options,
) -> io::Result<Played> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    let path = folder.join("history.jsonl");
    let usage = options.usage;
    let (names, languages) = (usage.names(), usage.clients());
    let clocks = has_faketime() && !topology.fails_over() && usage == Use::Locks;
    let store = Store::start(options.guarded).await?;
    let mut servers = Servers::start(topology, languages.len(), clocks).await;
    // Before the clients start, which keeps a small machine busy for longer than an attempt may take.
    let locker = client::locker(&servers.direct(), NAMESPACE)
        .await
        .map_err(io::Error::other)?;
    let (mut clients, mut store_links) = (Vec::new(), Vec::new());
    let mut random = Random::new(seed);
    for (number, language) in languages.iter().copied().enumerate() {
        let link = Proxy::start(store.port()).await;
        let settings = Settings {
            client: format!("{}-{number}", language.name()),
            urls: servers.urls(number),
            store: link.port(),
            names: names.clone(),
            usage,
            namespace: if options.divided && language == Language::Node {
                "divided".to_owned()
            } else {
                NAMESPACE.to_owned()
            },
            history: path.canonicalize().unwrap_or_else(|_| path.clone()),
            seed: random.number() >> 12,
            workers: if usage == Use::Locks && language != Language::Command {
                2
            } else {
                1
            },
            ttl: millis(usage.ttl()),
            longest: millis(LONGEST_TTL),
            wait: millis(WAIT),
            timeout: millis(TIMEOUT),
            patience: millis(PATIENCE),
        };
        store_links.push(link);
        clients.push(Client::start(language, settings, programs.clone())?);
    }
    let nemesis = Nemesis::new(
        &mut servers,
        &mut clients,
        &store_links,
        locker,
        &names,
        (usage, clocks, seed),
    );
    let faults = nemesis.run(time).await;
    fault::write(&folder.join("faults.jsonl"), &faults)?;
    let mut violations = Vec::new();
    for client in &mut clients {
        if !client.end(TO_END).await {
            violations.push(format!(
                "I8: {} did not end within {TO_END:?}",
                client.name()
            ));
        }
    }
    drop(clients);
    violations.extend(ghosts(&servers, (usage, &names), &path, store.port()).await?);
    let round = Round {
        topology,
        usage,
        entries: history::read(&path)?,
        served: store.served(),
        faults,
    };
    let languages: BTreeSet<_> = languages.iter().map(|language| language.name()).collect();
    for language in languages {
        let is_acquired = |entry: &history::Entry| {
            entry.outcome == Some(Outcome::Ok)
                && entry.kind == Some(Kind::Acquire)
                && entry.client.starts_with(language)
        };
        if !round.entries.iter().any(is_acquired) {
            violations.push(format!("no client in {language} acquired anything"));
        }
    }
    Ok(Played { round, violations })
}

/// I6: when all faults are over and all clients gone, a new client acquires each name in time, with all its slots.
async fn ghosts(
    servers: &Servers,
    (usage, names): (Use, &[String]),
    history: &Path,
    store: u16,
) -> io::Result<Vec<String>> {
    let limit = if servers.topology.fails_over() {
        GHOSTS_OF_FAILOVER
    } else {
        GHOSTS
    };
    let end = Instant::now() + limit;
    let mut recorder = Recorder::open(history, "final-0.0/0".to_owned())?;
    let mut store = StoreClient::new(store);
    let mut violations = Vec::new();
    let locker = loop {
        match client::locker(&servers.direct(), NAMESPACE).await {
            Ok(locker) => break locker,
            Err(error) if Instant::now() > end => {
                return Ok(vec![format!(
                    "I6: no client can connect within {limit:?}: {error}"
                )]);
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    for name in names {
        let mut held = Vec::new();
        while held.len() < usage.holders() {
            recorder.call(Kind::Acquire, name, None, None);
            // Not for reading: readers are let in beside others.
            let left = end.saturating_duration_since(Instant::now());
            let acquiring = usage.acquire(&locker, name, false, left);
            let last = match timeout(left + TTL, acquiring).await {
                Ok(Ok(Some(lease))) => {
                    client::acquired(&mut recorder, &lease);
                    held.push(lease);
                    continue;
                }
                Ok(Ok(None)) => "it is held".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            recorder.back(Kind::Acquire, name, Outcome::None, |_| ());
            if Instant::now() > end {
                violations.push(format!(
                    "I6: {name} is not acquirable within {limit:?}: {last}"
                ));
                break;
            }
        }
        for lease in held {
            let (name, token) = (lease.resource(), lease.token().get());
            recorder.call(Kind::Read, &name, Some(token), None);
            let answer = store.ask(&format!("read {name} {token}")).await;
            client::answered(&mut recorder, Kind::Read, &name, token, answer);
            drop(lease.release().await);
        }
    }
    locker.shutdown().await;
    Ok(violations)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
