//! The format of the scenario files: see `tests/vectors/README.md`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Returns the folder of the files that every host reads.
pub(crate) fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    #[serde(rename = "shows")]
    _shows: String,
    #[serde(default = "every_store")]
    pub(crate) stores: Vec<StoreKind>,
    /// The limit of each step, in milliseconds.
    #[serde(default = "limit")]
    pub(crate) limit: u64,
    pub(crate) lockers: BTreeMap<String, LockerSpec>,
    pub(crate) locks: BTreeMap<String, LockSpec>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum StoreKind {
    Redis,
    Memory,
    /// Three in-memory stores, of which a majority decides.
    Quorum,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct LockerSpec {
    /// The server of a quorum that this locker uses alone, counted from 1.
    pub(crate) server: Option<usize>,
    pub(crate) namespace: Option<String>,
    pub(crate) owner: Option<String>,
    pub(crate) connect_timeout: Option<u64>,
    pub(crate) command_timeout: Option<u64>,
    pub(crate) patience: Option<u64>,
    pub(crate) drift_margin: Option<u32>,
    pub(crate) token_retention: Option<u64>,
}

/// The kind of a handle.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    #[default]
    Lock,
    /// A semaphore with this many slots.
    Slots(u32),
    /// A quota with this many units.
    Units(u32),
    Reader,
    Writer,
    /// Several names in the global order, or none before all are free.
    All(Vec<String>),
    AllAtOnce(Vec<String>),
}

#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent")]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct LockSpec {
    pub(crate) locker: String,
    /// The name, unless there are several.
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) kind: Kind,
    /// The weight of the permits.
    pub(crate) weight: Option<u32>,
    pub(crate) max_line: Option<u32>,
    #[serde(default)]
    pub(crate) strict: bool,
    pub(crate) ttl: Option<u64>,
    #[serde(default)]
    pub(crate) fixed: bool,
    #[serde(default)]
    pub(crate) reentrant: bool,
    pub(crate) owner: Option<String>,
    #[serde(default)]
    pub(crate) dense_tokens: bool,
    pub(crate) at_most: Option<u64>,
    pub(crate) at_least: Option<u64>,
}

/// An act, and the failure that it should have.
#[derive(Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(crate) struct Step {
    pub(crate) act: Act,
    pub(crate) failure: Option<Failure>,
}

#[derive(Deserialize)]
pub(crate) struct Failure {
    /// The error's code.
    pub(crate) error: String,
    /// Texts that its message contains.
    #[serde(default)]
    pub(crate) says: Vec<String>,
}

impl TryFrom<Map<String, Value>> for Step {
    type Error = serde_json::Error;

    fn try_from(mut step: Map<String, Value>) -> Result<Self, Self::Error> {
        // Acts that cannot fail do not have these fields, and refuse them.
        const MAY_FAIL: [&str; 17] = [
            "resize",
            "downgrade",
            "tryAcquire",
            "acquireWithin",
            "acquire",
            "end",
            "release",
            "renew",
            "pass",
            "accept",
            "inspect",
            "list",
            "forceRelease",
            "yielded",
            "wanted",
            "badLocker",
            "badLock",
        ];
        let act = step.get("do").and_then(Value::as_str);
        let may_fail = act.is_some_and(|act| MAY_FAIL.contains(&act));
        let failure: Map<_, _> = ["error", "says"]
            .iter()
            .filter(|_| may_fail)
            .filter_map(|field| step.remove_entry(*field))
            .collect();
        let failure = (!failure.is_empty()).then(|| serde_json::from_value(failure.into()));
        let failure = failure.transpose()?;
        let act = serde_json::from_value(step.into())?;
        Ok(Self { act, failure })
    }
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[serde(deny_unknown_fields)]
pub(crate) enum Act {
    TryAcquire {
        lock: String,
        r#as: Option<String>,
        #[serde(default)]
        result: Outcome,
    },
    AcquireWithin {
        lock: String,
        ms: u64,
        r#as: Option<String>,
        #[serde(default)]
        result: Outcome,
    },
    Acquire {
        lock: String,
        r#as: Option<String>,
        #[serde(default)]
        result: Outcome,
    },
    Begin {
        lock: String,
        r#as: String,
        ms: Option<u64>,
    },
    End {
        call: String,
        r#as: Option<String>,
        #[serde(default)]
        result: Outcome,
    },
    Pending {
        calls: Vec<String>,
    },
    Abort {
        call: String,
    },
    Release {
        lease: String,
        names: Option<Vec<String>>,
    },
    Resize {
        lock: String,
        capacity: u32,
        epoch: Option<u32>,
    },
    Downgrade {
        lease: String,
    },
    Permit {
        lease: String,
        slots: Option<Vec<u16>>,
        resource: Option<String>,
        capacity: Option<u32>,
        epoch: Option<u32>,
        #[serde(default)]
        generation: Given<String>,
    },
    Renew {
        lease: String,
        ttl: Option<u64>,
    },
    Pass {
        lease: String,
        r#as: String,
    },
    Accept {
        locker: Option<String>,
        lock: Option<String>,
        ticket: Option<String>,
        text: Option<String>,
        r#as: Option<String>,
    },
    Lease {
        lease: String,
        valid: Option<bool>,
        remaining: Option<Range>,
        #[serde(rename = "holdCount")]
        hold_count: Option<u32>,
    },
    Held {
        lock: String,
        held: bool,
    },
    Lost {
        lease: String,
        reason: String,
        name: Option<String>,
    },
    Run {
        lease: String,
        reason: Option<String>,
    },
    Tokens {
        #[serde(default)]
        rising: Vec<String>,
        #[serde(default)]
        equal: Vec<String>,
        #[serde(default)]
        are: BTreeMap<String, u64>,
    },
    Inspect {
        locker: String,
        name: String,
        #[serde(default)]
        holder: Given<HolderSpec>,
        #[serde(default)]
        last_token: Given<String>,
        waiting: Option<u32>,
        line: Option<Vec<String>>,
        #[serde(default)]
        wanted: Given<String>,
        #[serde(default)]
        shared: Given<SharedSpec>,
    },
    List {
        locker: String,
        pattern: String,
        #[serde(default)]
        names: Vec<String>,
    },
    ForceRelease {
        locker: String,
        name: String,
        #[serde(default)]
        holder: Given<HolderSpec>,
    },
    RequestYield {
        locker: String,
        name: String,
        within: u64,
        #[serde(default)]
        force: bool,
        r#as: String,
    },
    Yielded {
        request: String,
        is: bool,
    },
    Wanted {
        lease: String,
    },
    Stats {
        locker: String,
        is: Value,
    },
    Shutdown {
        locker: String,
    },
    Events {
        lock: Option<String>,
        locker: Option<String>,
        r#as: String,
    },
    Told {
        events: String,
        #[serde(default)]
        expect: Vec<EventSpec>,
        #[serde(default)]
        ends: bool,
    },
    Hold {
        lock: String,
        r#as: String,
    },
    Next {
        tenures: String,
        r#as: Option<String>,
        #[serde(default)]
        ends: bool,
    },
    BadLocker(LockerSpec),
    BadLock(LockSpec),
    Subscribed {
        count: usize,
    },
    Pause {
        ms: u64,
    },
    CutOff {
        server: usize,
    },
    Redis {
        command: Vec<String>,
        #[serde(default)]
        reply: Given<Value>,
    },
}

/// The least and the most, in milliseconds.
pub(crate) type Range = [u64; 2];

#[derive(Copy, Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    #[default]
    Held,
    Busy,
}

/// A field that may be missing or `null`.
#[derive(Default)]
pub(crate) enum Given<T> {
    #[default]
    LeftOut,
    Nothing,
    Is(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let given = Option::deserialize(value)?;
        Ok(given.map_or(Self::Nothing, Self::Is))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HolderSpec {
    pub(crate) token: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) reclaimable: Option<bool>,
    pub(crate) remaining: Option<Range>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SharedSpec {
    pub(crate) capacity: Option<u32>,
    pub(crate) used: Option<u32>,
    /// The labels of the holders, in any order.
    pub(crate) by: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventSpec {
    pub(crate) r#type: String,
    pub(crate) name: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) position: Option<u32>,
    pub(crate) by: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) capacity: Option<u32>,
    pub(crate) wanted: Option<u32>,
}

impl LockSpec {
    fn is_named(&self) -> bool {
        let is_several = matches!(self.kind, Kind::All(_) | Kind::AllAtOnce(_));
        self.name.is_some() != is_several
    }
}

impl Scenario {
    /// Returns every scenario that should pass, or the one that `SCENARIO` names.
    pub(crate) fn all() -> Vec<(String, Self)> {
        let folder = vectors().join("scenarios");
        let files = fs::read_dir(&folder).expect("the vectors exist");
        let mut all: Vec<_> = files
            .map(|file| file.expect("the folder can be read").path())
            .map(|path| {
                let name = path
                    .file_name()
                    .expect("a file has a name")
                    .to_string_lossy();
                let name = name
                    .strip_suffix(".json")
                    .expect("only scenarios are there");
                let scenario = Self::read(read_json(&path));
                let scenario = scenario.unwrap_or_else(|error| panic!("{name}: {error}"));
                (name.to_owned(), scenario)
            })
            .filter(|(name, _)| env::var("SCENARIO").map_or(true, |only| only == *name))
            .collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Parses a scenario. Refuses what this interpreter does not support.
    pub(crate) fn read(value: Value) -> Result<Self, String> {
        let scenario: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let only = |kind| scenario.stores.iter().all(|store| *store == kind);
        let commands = |step: &Step| matches!(step.act, Act::Redis { .. });
        if scenario.steps.iter().any(commands) && !only(StoreKind::Redis) {
            return Err("an in-memory store takes no commands".into());
        }
        if let Some((name, _)) = scenario.locks.iter().find(|(_, lock)| !lock.is_named()) {
            return Err(format!("{name:?} has a name or a list of names, not both"));
        }
        let cuts = |step: &Step| matches!(step.act, Act::CutOff { .. });
        let alone = |locker: &LockerSpec| locker.server.is_some();
        let names_a_server =
            scenario.steps.iter().any(cuts) || scenario.lockers.values().any(alone);
        if names_a_server && !only(StoreKind::Quorum) {
            return Err("only a quorum has several servers".into());
        }
        Ok(scenario)
    }
}

pub(crate) fn read_json(path: &Path) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn every_store() -> Vec<StoreKind> {
    vec![StoreKind::Redis, StoreKind::Memory]
}

fn limit() -> u64 {
    10_000
}
