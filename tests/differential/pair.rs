//! A real server and the model, on which single operations run one after the other. After each operation both must
//! have given the same reply and pushes, and hold the same keys.
//!
//! Times are long, or so short that they have ended before the next step. So no expiry is close to a step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_engine::protocol::{ClientId, Command, LockKey, Reply};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{Error, ErrorKind, MemoryServer};

use crate::real::{Listener, Real};
use crate::samples::{batch, key};
use crate::sequence::client;

pub(crate) const LONG: Duration = Duration::from_secs(600);
pub(crate) const SHORT: Duration = Duration::from_millis(20);

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

pub(crate) struct Pair {
    pub(crate) real: Real,
    listeners: Vec<Listener>,
    pub(crate) model: MemoryServer,
    clients: BTreeSet<ClientId>,
    pub(crate) outcomes: BTreeMap<String, u32>,
}

impl Pair {
    pub(crate) async fn start() -> Self {
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

    pub(crate) async fn clear(&mut self) {
        self.real.admin.flushall().await;
        self.model = MemoryServer::new();
        for client in &self.clients {
            self.model.subscribe(*client);
        }
    }

    /// Runs one operation on both, and checks that they agree.
    pub(crate) async fn step(&mut self, command: Command, step: &str) -> Result<Reply, Error> {
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
        self.compare_keys(step).await;
        real.replies.into_iter().next().expect("one reply")
    }

    /// Deletes one of the keys of a shared name on both.
    pub(crate) async fn lose(&mut self, name: &LockKey, lost: &str) {
        self.real.admin.command(&["DEL", lost]).await;
        if lost == name.lock() {
            self.model.delete(name);
        } else {
            self.model.delete_holders(name);
        }
    }

    async fn compare_keys(&mut self, step: &str) {
        let mut dump = self.real.dump().await;
        let now = dump.time;
        for name in [key("one"), key("two")] {
            let lines = |fields: Vec<(String, String)>| -> String {
                let line = |(one, two)| format!("{one} {two}\n");
                fields.into_iter().map(line).collect()
            };
            let hash = self.model.lock_value(now, &name);
            let hash = hash.map(|(mut fields, expires)| {
                fields.sort();
                (lines(fields), expires)
            });
            let holders = self.model.holders_value(now, &name);
            let holders = holders.map(|(members, expires)| {
                let members = members.into_iter();
                let members = members.map(|(member, score)| (score.to_string(), member));
                (lines(members.collect()), expires)
            });
            for (key, ours) in [(name.lock().to_owned(), hash), (name.holders(), holders)] {
                let theirs = dump.keys.remove(&key);
                let theirs = theirs.map(|entry| (entry.value, entry.expires));
                let (theirs, ours) = (theirs.unzip(), ours.unzip());
                assert_eq!(theirs.0, ours.0, "{step}: {key:?}");
                // Redis counts a key's time from a moment after the script's.
                let ours = ours.1.flatten().map_or(0, ServerTime::millis);
                let apart = theirs.1.flatten().unwrap_or(0).abs_diff(ours);
                assert!(
                    apart < 200,
                    "{step}: the expiry of {key:?} differs by {apart} ms"
                );
            }
            let line = dump.keys.remove(&name.line()).map(|entry| entry.value);
            let line = line.iter().flat_map(|line| line.lines());
            let claims = line.filter_map(|line| line.split_once(' ').map(|(_, claim)| claim));
            let theirs: Vec<_> = claims.filter(|claim| !claim.starts_with('a')).collect();
            let ours = self.model.line_value(now, &name);
            let ours = ours.map(|(claims, _)| claims).unwrap_or_default();
            let ours: Vec<_> = ours.into_iter().map(|(claim, ..)| claim).collect();
            assert_eq!(theirs, ours, "{step}: the line of {name:?}");
        }
        assert!(dump.keys.is_empty(), "{step}: {:?}", dump.keys);
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
            Command::Admit(_) => "admit",
            Command::Extend(_) => "extend",
            Command::Vacate(_) => "vacate",
            Command::Resize(_) => "resize",
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
            Ok(Reply::Admitted(..)) => outcomes.push("admitted".to_owned()),
            Ok(Reply::Excess { .. }) => outcomes.push("excess".to_owned()),
            Ok(Reply::Resized { .. }) => outcomes.push("resized".to_owned()),
            Ok(Reply::Taken) => outcomes.push("taken".to_owned()),
            Ok(Reply::Inspected(seen)) => {
                let job = seen.job.as_ref();
                let is_completed = job.is_some_and(|job| job.completed.is_some());
                let is_begun = job.is_some_and(|job| job.begun.is_some());
                let all = [
                    ("held", seen.holder.is_some()),
                    ("shared", seen.shared.is_some()),
                    ("completed", is_completed),
                ];
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
}
