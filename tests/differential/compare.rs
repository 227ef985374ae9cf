//! Runs a sequence on the real server and on the model, and compares them.
//!
//! Redis decides what has expired by a clock that it read up to some milliseconds before the TIME that the
//! script sees. So no step begins close to an expiry. If the machine was so slow that a step ran close to one
//! all the same, the two cannot be compared, and the sequence runs again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_engine::protocol::{BatchReply, ClientId, LockKey, Op, Push, Reply};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{Error, FencingToken};
use tokio::time::sleep;

use crate::branches::Coverage;
use crate::model::{Flaw, Model};
use crate::real::{Dump, Entry, Listener, Real};
use crate::sequence::{CLIENTS, Sequence, Step, client};

/// No step begins from this many milliseconds before an expiry until that many after it.
const BEFORE: u64 = 3;
const AFTER: u64 = 4;
/// Everything that expires at all does so within this many milliseconds, the longest of the short times.
const SHORT: u64 = 130;
/// How often a sequence runs until the two can be compared.
const ATTEMPTS: usize = 20;
const HOUR: Duration = Duration::from_secs(3_600);
const HOUR_MICROS: u64 = 3_600_000_000;

/// The reason why a sequence did not reach its end.
enum Trouble {
    /// An expiry was too close to tell the right result.
    Unclear,
    Differs(String),
}

/// The results of all sequences.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) coverage: Coverage,
    pub(crate) operations: usize,
    pub(crate) pushes: usize,
    /// The number of runs in which an expiry came too close.
    pub(crate) unclear: usize,
    /// The number of sequences for which an expiry came too close in every run.
    pub(crate) given_up: usize,
}

/// A real server, and the connections of the clients that may subscribe.
pub(crate) struct Ground {
    real: Real,
    listeners: Vec<Listener>,
}

impl Ground {
    pub(crate) async fn start() -> Self {
        let real = Real::start().await;
        let mut listeners = Vec::new();
        for number in 0..CLIENTS {
            listeners.push(Listener::connect(&real.server, client(number)).await);
        }
        Self { real, listeners }
    }
}

/// Runs the sequence on both, on empty stores. Returns the first difference.
pub(crate) async fn compare(
    ground: &mut Ground,
    flaw: Flaw,
    sequence: &Sequence,
    report: &mut Report,
) -> Result<(), String> {
    for _ in 0..ATTEMPTS {
        let Ground { real, listeners } = &mut *ground;
        real.admin.flushall().await;
        // An earlier sequence that ended with a difference may have left messages unread.
        for listener in &mut *listeners {
            listener
                .pushes()
                .await
                .map_err(|error| format!("an unread message of an earlier sequence: {error}"))?;
        }
        let mut run = Run {
            seen: real.dump().await,
            real,
            listeners,
            model: Model::new(flaw),
            names: sequence.keys(),
            outlived: BTreeSet::new(),
            report,
        };
        for (number, on) in sequence.subscribed.into_iter().enumerate() {
            run.listen(number, on).await;
        }
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
    listeners: &'a mut [Listener],
    model: Model,
    names: Vec<LockKey>,
    /// The contents of the real server after the last step.
    seen: Dump,
    /// Keys that expired by themselves and were not set since.
    outlived: BTreeSet<String>,
    report: &'a mut Report,
}

impl Run<'_> {
    async fn sequence(&mut self, sequence: &Sequence) -> Result<(), Trouble> {
        for (number, step) in sequence.steps.iter().enumerate() {
            // A box, since the future is large and the stack of a test is small.
            Box::pin(self.step(sequence, step))
                .await
                .map_err(|trouble| match trouble {
                    Trouble::Differs(text) => {
                        Trouble::Differs(format!("in step {number}, {step:?}: {text}"))
                    }
                    Trouble::Unclear => Trouble::Unclear,
                })?;
        }
        Ok(())
    }

    async fn step(&mut self, sequence: &Sequence, step: &Step) -> Result<(), Trouble> {
        match step {
            Step::Sleep(millis) => sleep(Duration::from_millis(*millis)).await,
            Step::OutliveNext => self.outlive_next().await,
            _ => {}
        }
        let mut since = self.settle().await?;
        let model_before = self.model.clone();
        match step {
            Step::Batch(planned) => {
                let batch = sequence.batch(planned, since, &self.model);
                let (began, answer) = (since, self.batch(since, &batch).await?);
                since = answer.time.unwrap_or(since);
                if !self.model.is_flawed() {
                    let coverage = &mut self.report.coverage;
                    let (before, outlived) = (model_before.clone(), &self.outlived);
                    coverage.note(before, &self.names, (began, &batch, &answer), outlived);
                }
            }
            Step::Crowd(crowd) => {
                let crowd = crowd.batch(&self.names);
                since = self.batch(since, &crowd).await?.time.unwrap_or(since);
            }
            Step::Listen(number, on) => self.listen(*number, *on).await,
            Step::Sleep(_) | Step::OutliveNext => {}
            Step::Delete(name) => {
                let key = self.name(*name);
                self.real.admin.int(&["DEL", key.lock()]).await;
                self.model.delete(&key);
            }
            Step::Expire(name) => {
                let key = self.name(*name);
                let (lock, long_ago) = (key.lock(), "1");
                self.real.admin.int(&["PEXPIREAT", lock, long_ago]).await;
                self.model.delete(&key);
            }
            Step::DeleteLine(name) => {
                let key = self.name(*name);
                if self.model.delete_line(since, &key) {
                    self.real.admin.int(&["DEL", &key.line()]).await;
                }
            }
            Step::Flush => {
                self.real.admin.flushall().await;
                self.model.flush();
                self.outlived.clear();
            }
            Step::CounterAhead(name) => {
                self.set_last(since, *name, (since + HOUR).as_micros())
                    .await;
            }
            Step::CounterBehind(name) => {
                self.set_last(since, *name, since.as_micros() - HOUR_MICROS)
                    .await;
            }
            Step::CounterNearEnd(name, left) => {
                self.set_last(since, *name, FencingToken::MAX.get() - left)
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
        let (time, now) = (self.seen.time, self.seen.time.millis());
        let mut ends = self.expiries(time);
        for name in &self.names {
            let line = self.model.line(time, name);
            ends.extend(line.iter().map(|place| place.live_until));
            let tenure = self.model.tenure(time, name);
            ends.extend(tenure.map(|tenure| tenure.expires.millis()));
            let request = tenure.and_then(|tenure| tenure.request.as_ref());
            ends.extend(request.map(|request| request.until.millis()));
        }
        let left = ends.iter().filter_map(|end| end.checked_sub(now)).min();
        if let Some(left) = left.filter(|left| *left <= SHORT) {
            sleep(Duration::from_millis(left + AFTER)).await;
        }
    }

    async fn listen(&mut self, number: usize, on: bool) {
        self.listeners[number].listen(on).await;
        self.model.listen(client(number), on);
    }

    /// Runs the batch on both. Returns the real server's answer.
    async fn batch(&mut self, since: ServerTime, batch: &[Op]) -> Result<BatchReply, Trouble> {
        let expiries = self.expiries(since);
        let real = self.real.run(batch).await.map_err(Trouble::Differs)?;
        let mut theirs = BTreeMap::new();
        for (number, listener) in self.listeners.iter_mut().enumerate() {
            let pushes = listener.pushes().await.map_err(Trouble::Differs)?;
            theirs.insert(client(number), pushes);
        }
        // A batch that does not read the clock does not depend on the time.
        let now = real.time.unwrap_or(since);
        clear(&expiries, since, now)?;
        let model = self.model.execute(now, batch);
        if real.replies.len() != model.replies.len() {
            let text = format!("the server replied {real:?}, the model {model:?}");
            return Err(Trouble::Differs(text));
        }
        for (index, (theirs, ours)) in real.replies.iter().zip(&model.replies).enumerate() {
            if !is_same(theirs, ours) {
                return Err(Trouble::Differs(format!(
                    "reply {index} at {now:?}: the server replied {theirs:?}, the model {ours:?}"
                )));
            }
        }
        self.check_pushes(&theirs)?;
        self.report.operations += batch.len();
        Ok(real)
    }

    /// Checks that each client gets the same pushes in the same order.
    fn check_pushes(&mut self, theirs: &BTreeMap<ClientId, Vec<Push>>) -> Result<(), Trouble> {
        let mut ours: BTreeMap<ClientId, Vec<Push>> =
            theirs.keys().map(|client| (*client, Vec::new())).collect();
        for (client, push) in self.model.take_pushes() {
            self.report.pushes += 1;
            ours.entry(client).or_default().push(push);
        }
        if ours == *theirs {
            return Ok(());
        }
        let text = format!("the pushes: the server sent {theirs:#?}, the model {ours:#?}");
        Err(Trouble::Differs(text))
    }

    async fn set_last(&mut self, now: ServerTime, name: usize, last: u64) {
        let key = self.name(name);
        self.model.set_last(now, &key, last);
        let entry = self
            .model
            .lock(now, &key)
            .expect("the token was set just now");
        let (token, expires) = (
            last.to_string(),
            entry.expires.expect("the counter is not dense"),
        );
        self.real.admin.int(&["DEL", key.lock(), &key.line()]).await;
        self.real
            .admin
            .int(&["HSET", key.lock(), "t", &token])
            .await;
        let expires = ["PEXPIREAT", key.lock(), &expires.to_string()];
        self.real.admin.int(&expires).await;
        self.seen.keys.remove(key.lock());
    }

    /// Waits until no expiry is close. Returns the server's time.
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

    /// Returns when the keys of the real server after the last step expire, and those of the model.
    fn expiries(&self, now: ServerTime) -> Vec<u64> {
        let model = expected(&self.model, &self.names, now);
        let entries = self.seen.keys.values().chain(model.values());
        entries.filter_map(|entry| entry.expires).collect()
    }

    /// Checks that the real server has the model's keys. Changes may have happened since `since`.
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
            let (lock, line) = (name.lock(), name.line());
            let same = match (dump.keys.get(lock), model.get(lock)) {
                (Some(theirs), Some(ours)) => {
                    let former = before.lock(dump.time, name).map(|entry| entry.expires);
                    let seen = self.seen.keys.get(lock).map(|entry| entry.expires);
                    let kept = former == Some(ours.expires) && seen == Some(theirs.expires);
                    theirs.value == ours.value && (kept || close(theirs, ours, since, dump.time))
                }
                (theirs, ours) => theirs == ours,
            };
            // An operation that reads only the hash must not overtake waiters.
            let told = dump.flagged.contains(lock) || !dump.keys.contains_key(lock);
            let known = told || !dump.keys.contains_key(&line);
            if !same || !known || dump.keys.get(&line) != model.get(&line) {
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

/// Returns the keys that the real server should have.
fn expected(model: &Model, names: &[LockKey], now: ServerTime) -> BTreeMap<String, Entry> {
    let locks = names
        .iter()
        .map(|name| (name.lock().to_owned(), model.lock(now, name)));
    let lines = names
        .iter()
        .map(|name| (name.line(), model.line_key(now, name)));
    let all = locks.chain(lines);
    all.filter_map(|(key, entry)| Some((key, entry?))).collect()
}

fn is_same(theirs: &Result<Reply, Error>, ours: &Result<Reply, Error>) -> bool {
    match (theirs, ours) {
        (Ok(theirs), Ok(ours)) => in_order(theirs) == in_order(ours),
        (Err(theirs), Err(ours)) => theirs.kind() == ours.kind(),
        _ => false,
    }
}

/// Sorts a list, which has no order and may contain a name twice.
fn in_order(reply: &Reply) -> Reply {
    let mut reply = reply.clone();
    if let Reply::Listed { names, .. } = &mut reply {
        names.sort();
        names.dedup();
    }
    reply
}

/// True if the expiries fit. That of a hash counts from Redis's own reading of the clock.
fn close(theirs: &Entry, ours: &Entry, since: ServerTime, until: ServerTime) -> bool {
    match (theirs.expires, ours.expires) {
        (Some(theirs), Some(ours)) => {
            let slack = until.millis() - since.millis() + 1;
            (ours - 1..=ours + slack).contains(&theirs)
        }
        (theirs, ours) => theirs == ours,
    }
}

fn clear(expiries: &[u64], from: ServerTime, to: ServerTime) -> Result<(), Trouble> {
    let range = from.millis() - 1..=to.millis() + 1;
    if expiries.iter().any(|at| range.contains(at)) {
        return Err(Trouble::Unclear);
    }
    Ok(())
}

fn keys_differ(dump: &Dump, model: &BTreeMap<String, Entry>) -> Trouble {
    let Dump {
        time,
        keys,
        flagged,
    } = dump;
    Trouble::Differs(format!(
        "the keys at {time:?}: the server has {keys:#?}, of which these flag possible waiters \
         {flagged:?}, the model's {model:#?}"
    ))
}
