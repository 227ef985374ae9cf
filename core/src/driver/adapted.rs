//! A Redis server through a client that the program adapts.

mod tracking;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::AbortHandle;

pub(crate) use self::tracking::Tracking;

use super::link::unanswered;
use super::seat::Seat;
use super::{Driver, info};
use crate::adapter::{Adapter, CallError, Command, Hearing, Link};
use crate::error::{Error, ErrorKind};
use crate::finding::Finding;
use crate::protocol::{self, BatchReply, Durability, LockKey, Op};
use crate::rt;
use crate::time::Timestamp;

const CHECK_TIMEOUT: Duration = Duration::from_secs(3);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct AdaptedStore {
    adapter: Arc<dyn Adapter>,
    /// Whether it is a client of a cluster, whose servers have a clock of their own each.
    is_clustered: bool,
    findings: Vec<Finding>,
    tracking: Arc<Tracking>,
    run_id: OnceLock<String>,
    watcher: OnceLock<AbortHandle>,
    listener: OnceLock<AbortHandle>,
}

impl AdaptedStore {
    /// Asks whether the server can keep locks, and lets this user.
    pub(super) async fn open(adapter: Arc<dyn Adapter>) -> Result<Self, Error> {
        let runtime = tokio::runtime::Handle::current();
        let mut store = Self {
            tracking: Arc::new(Tracking::new(adapter.clone(), runtime)),
            adapter,
            is_clustered: false,
            findings: Vec::new(),
            run_id: OnceLock::new(),
            watcher: OnceLock::new(),
            listener: OnceLock::new(),
        };
        store.findings = store.check().await.map_err(unanswered)?;
        store.is_clustered = store.adapter.is_clustered();
        // Loads the script, and finds out whether this user may run it.
        let probe = store.execute(&[], rt::now() + CHECK_TIMEOUT).await;
        probe.map_err(unanswered)?;
        Ok(store)
    }

    async fn check(&self) -> Result<Vec<Finding>, Error> {
        match self.call(Command::info(), CHECK_TIMEOUT).await {
            Ok(said) => {
                let mut findings = Vec::new();
                for info in said {
                    let info = String::from_utf8_lossy(&info);
                    findings.append(&mut info::check(&info, &self.run_id)?);
                    if info::is_of_cluster(&info) && !self.adapter.is_clustered() {
                        let message =
                            "the server is a node of a cluster; give a connection to the cluster";
                        return Err(Error::new(ErrorKind::Config, message));
                    }
                }
                findings.dedup();
                Ok(findings)
            }
            Err(CallError::Refused(said)) if protocol::info_is_withheld(&said) => {
                Ok(info::is_withheld())
            }
            Err(error) => Err(convert(error)),
        }
    }

    pub(super) fn is_clustered(&self) -> bool {
        self.is_clustered
    }

    /// What connecting found, and what was found later.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let later = self.tracking.finding().cloned();
        self.findings.iter().cloned().chain(later).collect()
    }

    /// What the server calls itself until it ends, if it says so.
    pub(super) fn run_id(&self) -> Option<String> {
        self.run_id.get().cloned()
    }

    pub(super) async fn execute(
        &self,
        batch: &[Op],
        give_up: Timestamp,
    ) -> Result<BatchReply, Error> {
        let left = || give_up.since(rt::now());
        let mut answer = self.call(Command::evalsha(batch), left()).await;
        if let Err(CallError::Refused(said)) = &answer
            && protocol::script_is_missing(said)
        {
            answer = self.call(Command::eval(batch), left()).await;
        }
        protocol::decode(batch, &answer.map_err(convert)?)
    }

    /// Executes a batch, and weighs its reply by the copies that there are of what it did.
    pub(super) async fn execute_durably(
        &self,
        batch: &[Op],
        durability: &Durability,
        give_up: Timestamp,
    ) -> Result<BatchReply, Error> {
        let pair = |script: Command| {
            let pair = self.adapter.pair(script, Command::wait(durability));
            let pair = pair.ok_or_else(|| {
                let message = "replicas and the disk cannot be waited for through this client";
                Error::new(ErrorKind::Unsupported, message)
            })?;
            let left = give_up.since(rt::now());
            Ok::<_, Error>(tokio::time::timeout(left, pair))
        };
        let late = |_| [Err(CallError::TimedOut), Err(CallError::TimedOut)];
        let mut replies = pair(Command::evalsha(batch))?.await.unwrap_or_else(late);
        if let [Err(CallError::Refused(said)), _] = &replies
            && protocol::script_is_missing(said)
        {
            replies = pair(Command::eval(batch))?.await.unwrap_or_else(late);
        }
        let [answer, said] = replies;
        let reply = protocol::decode(batch, &answer.map_err(convert)?)?;
        let copies = said.map_err(convert).and_then(|said| {
            let numbers = said
                .iter()
                .map(|text| str::from_utf8(text).ok()?.parse().ok());
            let numbers: Option<Vec<u64>> = numbers.collect();
            durability.copies(&numbers.unwrap_or_default())
        });
        durability.weigh(reply, copies)
    }

    async fn call(&self, command: Command, left: Duration) -> Result<Vec<Vec<u8>>, CallError> {
        let reply = tokio::time::timeout(left, self.adapter.call(command)).await;
        reply.unwrap_or(Err(CallError::TimedOut))
    }

    /// Hears when the link goes and when it is back.
    pub(super) fn watch_link(&self, driver: &Arc<Driver>, seat: Seat) {
        let adapter = self.adapter.clone();
        let watching = async move { adapter.watch(Link(seat)).await };
        let watcher = driver.runtime.spawn(watching).abort_handle();
        self.watcher
            .set(watcher)
            .expect("the link is watched from the start, once");
    }

    /// Listens, in the background, to what the server tells this client.
    pub(super) fn subscribe(&self, driver: &Arc<Driver>, seat: Seat) {
        let (adapter, channel) = (self.adapter.clone(), driver.channel.clone());
        let seat = if self.is_clustered {
            seat.shared()
        } else {
            seat
        };
        let tracking = driver.tracking.then(|| self.tracking.clone());
        let hearing = Hearing { seat, tracking };
        let listening = async move { adapter.listen(channel, hearing).await };
        let listener = driver.runtime.spawn(listening).abort_handle();
        self.listener
            .set(listener)
            .expect("the engine asks for a subscription once");
    }

    /// Reads these keys, so that the server says when others change them.
    pub(super) fn watch(&self, keys: Vec<LockKey>, driver: &Arc<Driver>, seat: Seat) {
        let tracking = self.tracking.clone();
        driver.runtime.spawn(async move {
            tracking.read(keys, &seat).await;
        });
    }

    pub(super) async fn close(&self) {
        for task in [&self.watcher, &self.listener] {
            task.get().inspect(|task| task.abort());
        }
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.adapter.close()).await;
    }
}

fn convert(error: CallError) -> Error {
    match error {
        CallError::Refused(said) => protocol::server_error(&said, None),
        CallError::TimedOut => Error::no_answer(),
        CallError::Unreachable(why) => Error::unreachable(&why),
        CallError::Unreadable(why) => Error::unreadable(&protocol::printable(&why)),
    }
}
