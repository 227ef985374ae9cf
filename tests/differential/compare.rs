//! Runs a sequence on the real server and on the model, and compares.
//!
//! Redis tells what has expired by a clock that it read up to some milliseconds before the TIME
//! that the script sees. So nothing runs close to an expiry; and if the machine was so slow that
//! something did all the same, then nothing can be told, and the sequence runs again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold::FencingToken;
use leasehold::protocol::{LockKey, Op};
use leasehold::time::ServerTime;
use tokio::time::sleep;

use crate::branches::Coverage;
use crate::model::{Flaw, Model};
use crate::real::{Dump, Entry, Real};
use crate::sequence::{Planned, Sequence, Step};

/// Nothing begins from so many milliseconds before an expiry until so many after it.
const BEFORE: u64 = 3;
const AFTER: u64 = 4;
/// What has expired at all does so within that many milliseconds, the longest of the short times.
const SHORT: u64 = 70;
/// Runs of one sequence until something can be told.
const ATTEMPTS: usize = 20;
const HOUR: Duration = Duration::from_secs(3_600);

/// Why a sequence did not come to its end.
enum Trouble {
    /// An expiry was too close to tell what is right.
    Unclear,
    Differs(String),
}

/// What became of all sequences.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) coverage: Coverage,
    pub(crate) operations: usize,
    /// Runs in which an expiry came too close.
    pub(crate) unclear: usize,
    /// Sequences for which every run was so.
    pub(crate) given_up: usize,
}

/// Runs the sequence on both, on empty stores; tells the first difference.
pub(crate) async fn compare(
    real: &mut Real,
    flaw: Flaw,
    sequence: &Sequence,
    report: &mut Report,
) -> Result<(), String> {
    for _ in 0..ATTEMPTS {
        real.admin.flushall().await;
        let mut run = Run {
            seen: real.dump().await,
            real,
            model: Model::new(flaw),
            names: sequence.keys(),
            outlived: BTreeSet::new(),
            report,
        };
        match run.sequence(sequence).await {
            Ok(()) => return Ok(()),
            Err(Trouble::Differs(difference)) => return Err(difference),
            Err(Trouble::Unclear) => report.unclear += 1,
        }
    }
    report.given_up += 1;
    Ok(())
}

struct Run<'a> {
    real: &'a mut Real,
    model: Model,
    names: Vec<LockKey>,
    /// What the real server held after the last step.
    seen: Dump,
    /// Keys that expired by themselves and were not set since.
    outlived: BTreeSet<String>,
    report: &'a mut Report,
}

impl Run<'_> {
    async fn sequence(&mut self, sequence: &Sequence) -> Result<(), Trouble> {
        for (number, step) in sequence.steps.iter().enumerate() {
            self.step(step).await.map_err(|trouble| match trouble {
                Trouble::Differs(text) => {
                    Trouble::Differs(format!("in step {number}, {step:?}: {text}"))
                }
                Trouble::Unclear => Trouble::Unclear,
            })?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Trouble> {
        match step {
            Step::Sleep(millis) => sleep(Duration::from_millis(*millis)).await,
            Step::OutliveNext => self.outlive_next().await,
            _ => {}
        }
        let mut since = self.settle().await?;
        let model_before = self.model.clone();
        match step {
            Step::Batch(planned) => since = self.batch(since, planned).await?,
            Step::Sleep(_) | Step::OutliveNext => {}
            Step::Delete(name) => {
                let key = self.name(*name);
                self.real.admin.int(&["DEL", &key.lock()]).await;
                self.model.delete(&key);
            }
            Step::Expire(name) => {
                let key = self.name(*name);
                let (lock, long_ago) = (key.lock(), "1");
                self.real.admin.int(&["PEXPIREAT", &lock, long_ago]).await;
                self.model.delete(&key);
            }
            Step::Flush => {
                self.real.admin.flushall().await;
                self.model.flush();
                self.outlived.clear();
            }
            Step::CounterAhead(name) => {
                self.raise_counter(since, *name, (since + HOUR).as_micros())
                    .await;
            }
            Step::CounterNearEnd(name, left) => {
                self.raise_counter(since, *name, FencingToken::MAX.get() - left)
                    .await;
            }
            Step::ForgetScripts => self.real.admin.ok(&["SCRIPT", "FLUSH"]).await,
        }
        self.check_keys(since, &model_before).await
    }

    fn name(&self, index: usize) -> LockKey {
        self.names[index % self.names.len()].clone()
    }

    async fn outlive_next(&self) {
        let now = self.seen.time.millis();
        let next = self.expiries(self.seen.time).into_iter().min();
        let left = next.and_then(|next| next.checked_sub(now));
        if let Some(left) = left.filter(|left| *left <= SHORT) {
            sleep(Duration::from_millis(left + AFTER)).await;
        }
    }

    /// The batch on both; returns when the real server ran it.
    async fn batch(
        &mut self,
        since: ServerTime,
        planned: &[Planned],
    ) -> Result<ServerTime, Trouble> {
        let token_of = |key: &LockKey| self.model.token_of(since, key);
        let batch = planned.iter().map(|op| op.at(since, &self.names, token_of));
        let batch: Vec<Op> = batch.collect();
        let expiries = self.expiries(since);
        let real = self.real.run(&batch).await.map_err(Trouble::Differs)?;
        clear(&expiries, since, real.time)?;
        let before = self.model.clone();
        let model = self.model.execute(real.time, &batch);
        if real.replies.len() != model.replies.len() {
            let text = format!("the real one {real:?}, the model {model:?}");
            return Err(Trouble::Differs(text));
        }
        for (index, (theirs, ours)) in real.replies.iter().zip(&model.replies).enumerate() {
            let same = match (theirs, ours) {
                (Ok(theirs), Ok(ours)) => theirs == ours,
                (Err(theirs), Err(ours)) => theirs.kind() == ours.kind(),
                _ => false,
            };
            if !same {
                return Err(Trouble::Differs(format!(
                    "reply {index} at {:?}: the real one {theirs:?}, the model {ours:?}",
                    real.time
                )));
            }
        }
        self.report.operations += batch.len();
        let coverage = &mut self.report.coverage;
        coverage.note(before, &batch, &real, &self.outlived);
        Ok(real.time)
    }

    async fn raise_counter(&mut self, now: ServerTime, name: usize, floor: u64) {
        let key = self.name(name);
        self.model.raise_counter(now, &key, floor);
        let counter = self.model.token(now, &key).expect("it was raised just now");
        self.real.admin.int(&["DEL", &key.lock()]).await;
        let mut set = vec!["SET".to_owned(), key.token(), counter.value];
        if let Some(expires) = counter.expires {
            set.extend(["PXAT".to_owned(), expires.to_string()]);
        }
        self.real.admin.ok(&set).await;
    }

    /// Waits until no expiry is close; returns the server's time.
    async fn settle(&mut self) -> Result<ServerTime, Trouble> {
        for _ in 0..100 {
            let now = self.real.time().await;
            let millis = now.millis();
            let close = self
                .expiries(now)
                .into_iter()
                .filter(|at| millis + BEFORE >= *at && millis < at + AFTER)
                .max();
            match close {
                None => return Ok(now),
                Some(at) => sleep(Duration::from_millis(at + AFTER - millis)).await,
            }
        }
        Err(Trouble::Unclear)
    }

    /// When what the real server held after the last step expires, and what the model holds.
    fn expiries(&self, now: ServerTime) -> Vec<u64> {
        let model = expected(&self.model, &self.names, now);
        let entries = self.seen.keys.values().chain(model.values());
        entries.filter_map(|entry| entry.expires).collect()
    }

    /// Demands that the real server holds what the model does, since which time there may have
    /// been changes.
    async fn check_keys(&mut self, since: ServerTime, before: &Model) -> Result<(), Trouble> {
        let dump = self.real.dump().await;
        let mut expiries = self.expiries(since);
        expiries.extend(dump.keys.values().filter_map(|entry| entry.expires));
        clear(&expiries, since, dump.time)?;
        let known: BTreeSet<&String> = self.seen.keys.keys().collect();
        for key in known {
            let end = self.seen.keys[key].expires;
            if end.is_some_and(|at| at < dump.time.millis()) {
                self.outlived.insert(key.clone());
            }
        }
        self.outlived.retain(|key| !dump.keys.contains_key(key));
        let model = expected(&self.model, &self.names, dump.time);
        for name in &self.names {
            let now = dump.time;
            let changed = before.token(now, name) != self.model.token(now, name);
            let token = name.token();
            let (theirs, ours) = (dump.keys.get(&token), model.get(&token));
            let same = match (theirs, ours) {
                (Some(theirs), Some(ours)) if changed => close(theirs, ours, since, now),
                (Some(_), Some(_)) => theirs == self.seen.keys.get(&token),
                _ => theirs == ours,
            };
            let lock = name.lock();
            if !same || dump.keys.get(&lock) != model.get(&lock) {
                return Err(keys_differ(&dump, &model));
            }
        }
        if !dump.keys.keys().eq(model.keys()) {
            return Err(keys_differ(&dump, &model));
        }
        self.seen = dump;
        Ok(())
    }
}

/// What the real server should hold.
fn expected(model: &Model, names: &[LockKey], now: ServerTime) -> BTreeMap<String, Entry> {
    let locks = names
        .iter()
        .filter_map(|name| Some((name.lock(), model.lock(now, name)?)));
    let tokens = names
        .iter()
        .filter_map(|name| Some((name.token(), model.token(now, name)?)));
    locks.chain(tokens).collect()
}

/// A counter's expiry counts from Redis's own look at the clock.
fn close(theirs: &Entry, ours: &Entry, since: ServerTime, until: ServerTime) -> bool {
    let in_time = match (theirs.expires, ours.expires) {
        (Some(theirs), Some(ours)) => {
            let slack = until.millis() - since.millis() + 1;
            (ours - 1..=ours + slack).contains(&theirs)
        }
        (theirs, ours) => theirs == ours,
    };
    theirs.value == ours.value && in_time
}

fn clear(expiries: &[u64], from: ServerTime, to: ServerTime) -> Result<(), Trouble> {
    let range = from.millis() - 1..=to.millis() + 1;
    if expiries.iter().any(|at| range.contains(at)) {
        return Err(Trouble::Unclear);
    }
    Ok(())
}

fn keys_differ(dump: &Dump, model: &BTreeMap<String, Entry>) -> Trouble {
    let Dump { time, keys } = dump;
    Trouble::Differs(format!(
        "the keys at {time:?}: the real ones are {keys:#?}, the model's {model:#?}"
    ))
}
