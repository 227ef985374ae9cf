//! Has a Redis server say when others change what this client has read: turned on for the connection
//! of commands, and heard on the listener's.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use ::fred::clients::Client;
use ::fred::error::{Error as FredError, ErrorKind};
use ::fred::interfaces::ClientLike;
use ::fred::types::client::Invalidation;
use ::fred::types::{ClusterHash, CustomCommand, RespVersion, Value};

use super::Input;
use super::errors::{Secrets, is_answer};
use super::seat::Seat;
use crate::finding::Finding;
use crate::protocol::LockKey;

const TIMEOUT: Duration = Duration::from_secs(2);

/// What `CLIENT GETREDIR` says where nothing is tracked.
const OFF: i64 = -1;

pub(super) struct Tracking {
    commands: Client,
    /// Whether this crate made that client.
    own: bool,
    secrets: Secrets,
    on: AtomicBool,
    /// Where the server was told last to say it: a connection's id.
    to: AtomicI64,
    /// What connecting found, and that with what was found since.
    found: OnceLock<Vec<Finding>>,
    all_found: OnceLock<Vec<Finding>>,
}

impl Tracking {
    pub(super) fn new(commands: Client, own: bool) -> Self {
        Self {
            secrets: Secrets::of(&commands),
            commands,
            own,
            on: AtomicBool::new(false),
            to: AtomicI64::new(OFF),
            found: OnceLock::new(),
            all_found: OnceLock::new(),
        }
    }

    pub(super) fn findings(&self) -> &[Finding] {
        let found = self.all_found.get().or_else(|| self.found.get());
        found.map_or(&[], Vec::as_slice)
    }

    /// To be called when it was connected for the first time.
    pub(super) fn found(&self, found: Vec<Finding>) {
        let _ = self.found.set(found);
    }

    /// Whether there is nothing to do: it is on, or never will be on this connection.
    pub(super) fn is_settled(&self) -> bool {
        self.on.load(Ordering::Acquire) || self.all_found.get().is_some()
    }

    /// From now on the connection of this id hears of changes. To be called for each new connection of
    /// either kind. Without a right to it everything goes on as it would without tracking.
    pub(super) async fn turn_on(&self, listener: Option<i64>, seat: &Seat) {
        match self.try_turn_on(listener).await {
            Ok(()) => {
                self.on.store(true, Ordering::Release);
                let server = seat.server;
                seat.feed(Input::Watching { server });
            }
            Err(error) => self.failed(&error),
        }
    }

    async fn try_turn_on(&self, listener: Option<i64>) -> Result<(), FredError> {
        // fred takes a push that it does not know for the reply to some command.
        if self.commands.protocol_version() == RespVersion::RESP3 {
            return Err(in_the_way("the connection for commands speaks RESP3"));
        }
        let Some(listener) = listener else {
            return Err(in_the_way("the user may not run CLIENT ID (+client|id)"));
        };
        let last = self.to.swap(listener, Ordering::AcqRel);
        if !self.own {
            let [to] = self.ask([("GETREDIR", vec![])]).await?;
            let to: i64 = to?.convert()?;
            if to != OFF && to != last {
                return Err(in_the_way("the program's client tracks keys itself"));
            }
        }
        let redirect = ["ON", "REDIRECT", &listener.to_string(), "OPTIN", "NOLOOP"];
        let args = redirect.map(Value::from).to_vec();
        let [done] = self.ask([("TRACKING", args)]).await?;
        done.map(drop)
    }

    /// Reads these locks' keys. If one is not there, or no reply came, the engine hears of it as of a
    /// change.
    pub(super) async fn read(&self, keys: Vec<LockKey>, seat: &Seat) {
        if !self.on.load(Ordering::Acquire) {
            return;
        }
        for keys in seat.at_once(keys) {
            match self.read_at_once(&keys).await {
                Ok(true) => {}
                Ok(false) => {
                    for key in keys {
                        seat.feed(Input::Changed { key: Some(key) });
                    }
                }
                Err(error) => self.failed(&error),
            }
        }
    }

    /// Returns whether all of them are there, as far as that is known.
    async fn read_at_once(&self, keys: &[LockKey]) -> Result<bool, FredError> {
        let names = keys.iter().map(|key| Value::from(key.lock())).collect();
        let asked = [
            ("CLIENT", vec!["CACHING".into(), "YES".into()]),
            ("EXISTS", names),
        ];
        match self.pipeline(asked).await? {
            [Err(error), _] if self.is_refused(&error) => Err(error),
            // Else the connection is a new one, for which it is turned on soon.
            [_, Ok(there)] => Ok(there
                .as_u64()
                .is_none_or(|there| there >= keys.len() as u64)),
            // Its slot of the cluster has moved, or moves.
            [_, Err(error)] if error.is_cluster() => Ok(false),
            [_, Err(error)] => Err(error),
        }
    }

    async fn ask<const N: usize>(
        &self,
        questions: [(&'static str, Vec<Value>); N],
    ) -> Result<[Result<Value, FredError>; N], FredError> {
        let commands = questions.map(|(what, mut args)| {
            args.insert(0, what.into());
            ("CLIENT", args)
        });
        self.pipeline(commands).await
    }

    /// Sends commands with nothing between them.
    async fn pipeline<const N: usize>(
        &self,
        commands: [(&'static str, Vec<Value>); N],
    ) -> Result<[Result<Value, FredError>; N], FredError> {
        let pipeline = self.commands.pipeline();
        for (command, args) in commands {
            let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
            let _queued: Value = pipeline.custom(command, args).await?;
        }
        let replies = tokio::time::timeout(TIMEOUT, pipeline.try_all()).await;
        let replies = replies.map_err(|_| FredError::new(ErrorKind::Timeout, "no reply"))?;
        // What could not be sent is one error.
        <[_; N]>::try_from(replies).map_err(|replies| {
            let error = replies.into_iter().find_map(Result::err);
            error.unwrap_or_else(|| in_the_way("the replies are not those to what was asked"))
        })
    }

    fn is_refused(&self, error: &FredError) -> bool {
        self.secrets.convert(error).kind() == crate::ErrorKind::Auth
    }

    /// Without a link it is tried again on the next.
    fn failed(&self, error: &FredError) {
        let is_final = is_answer(error) || matches!(error.kind(), ErrorKind::Config);
        tracing::debug!(target: "leasehold", is_final, "changes by others are not heard at once");
        if is_final {
            self.on.store(false, Ordering::Release);
            self.all_found.get_or_init(|| {
                let reason = match error.kind() {
                    ErrorKind::Config => error.details().to_owned(),
                    _ => self.secrets.convert(error).to_string(),
                };
                let untracked = Finding::Untracked { reason };
                self.findings().iter().cloned().chain([untracked]).collect()
            });
        }
    }
}

fn in_the_way(what: &'static str) -> FredError {
    FredError::new(ErrorKind::Config, what)
}

/// What others have changed.
pub(super) fn changed(seat: &Seat, invalidation: &Invalidation) {
    // As fred says it that everything may have changed.
    if invalidation.keys.is_empty() {
        seat.feed(Input::Changed { key: None });
    }
    for key in &invalidation.keys {
        let key = key.as_str().and_then(LockKey::of_lock);
        if key.is_some() {
            seat.feed(Input::Changed { key });
        }
    }
}
