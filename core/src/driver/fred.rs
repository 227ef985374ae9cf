//! A Redis server through the fred client.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use ::fred::clients::Client;
use ::fred::error::{Error as FredError, ErrorKind as FredErrorKind};
use ::fred::interfaces::ClientLike;
use ::fred::types::config::{Config, Options, ReconnectPolicy};
use ::fred::types::{Builder, ClusterHash, CustomCommand, FromValue, Value};
use futures::future::{self, Either};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::endpoint::Endpoint;
use super::errors::{Secrets, is_answer};
use super::link::{Link, OwnTask, unanswered};
use super::listener::Shards;
use super::seat::Seat;
use super::sentinels;
use super::tracking::Tracking;
use super::url::RedisTarget;
use super::{Driver, info, listener};
use crate::engine::Suspicion;
use crate::error::{Error, ErrorKind};
use crate::finding::Finding;
use crate::protocol::{self, BatchReply, Durability, LockKey, Op};
use crate::time::Timestamp;

/// Connecting takes several questions.
const INIT_TIMEOUTS: u32 = 2;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How many commands fred may hold back. The engine gives up on each after its time-out.
const MAX_COMMANDS: usize = 65_536;

const PING_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct FredStore {
    link: Arc<Link>,
    /// If this crate made the client and so decides over its connection: the task of that, once there
    /// is one.
    own: Option<OnceLock<OwnTask>>,
    /// Whether the connection is being looked at or replaced already.
    suspected: Arc<AtomicBool>,
    watcher: OnceLock<AbortHandle>,
    listener: OnceLock<AbortHandle>,
    /// Of a node of a cluster.
    shards: Arc<Shards>,
}

impl FredStore {
    pub(super) async fn connect(target: RedisTarget) -> Result<Self, Error> {
        Self::reach(target, async |store| store.link.check().await).await
    }

    /// Connects, and asks whether it is right there.
    pub(super) async fn reach(
        target: RedisTarget,
        check: impl AsyncFnOnce(&Self) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let shown = target.shown.clone();
        let named = |cause: Error| cause.of(&shown);
        let store = Self::make(target, true).map_err(named)?;
        // It is large, and comes once for each locker.
        let task = Box::pin(store.open(&shown, check)).await;
        let task = OnceLock::from(task.map_err(named)?);
        Ok(Self {
            own: Some(task),
            ..store
        })
    }

    /// Connects once it is [followed](Self::watch_link), again and again until the server is there.
    pub(super) fn connect_lazily(target: RedisTarget) -> Result<Self, Error> {
        let shown = target.shown.clone();
        let store = Self::make(target, false).map_err(|error| error.of(&shown))?;
        Ok(Self {
            own: Some(OnceLock::new()),
            ..store
        })
    }

    /// Uses a client of the program's, which is not of a cluster.
    pub(super) async fn with_client(client: Client, timeout: Duration) -> Result<Self, Error> {
        let store = Self::of(client, (None, false), (timeout, false));
        store.link.check().await?;
        Ok(store)
    }

    fn make(target: RedisTarget, fail_fast: bool) -> Result<Self, Error> {
        let RedisTarget {
            config,
            endpoint,
            of_cluster,
            timeout,
            ..
        } = target;
        let client = Self::client_of(config, timeout, fail_fast)?;
        Ok(Self::of(client, (endpoint, of_cluster), (timeout, true)))
    }

    /// A client that is not connected yet, for the program's own use.
    pub(super) fn client(target: RedisTarget) -> Result<Client, Error> {
        let client = Self::client_of(target.config, target.timeout, true);
        client.map_err(|error| error.of(&target.shown))
    }

    pub(super) fn client_of(
        config: Config,
        timeout: Duration,
        fail_fast: bool,
    ) -> Result<Client, Error> {
        let secrets = Secrets::in_config(&config);
        Self::plain(config, timeout, fail_fast).map_err(|error| secrets.convert(&error))
    }

    /// Makes a client as [`client_of`](Self::client_of) does, but returns the client's own error.
    pub(super) fn plain(
        config: Config,
        timeout: Duration,
        fail_fast: bool,
    ) -> Result<Client, FredError> {
        Builder::from_config(Config {
            fail_fast,
            ..config
        })
        .with_connection_config(|connection| {
            connection.connection_timeout = timeout;
            connection.internal_command_timeout = timeout;
            // A command that is sent twice is decided on by the engine, not by the client.
            connection.max_command_attempts = 1;
            connection.max_command_buffer_len = MAX_COMMANDS;
            connection.tcp.nodelay = Some(true);
        })
        .set_policy(ReconnectPolicy::new_exponential(0, 50, 2_000, 2))
        .build()
    }

    fn of(
        client: Client,
        (endpoint, of_cluster): (Option<Endpoint>, bool),
        (timeout, own): (Duration, bool),
    ) -> Self {
        let link = Link {
            secrets: Secrets::of(&client),
            tracking: Arc::new(Tracking::new(client.clone(), own)),
            client,
            endpoint,
            of_cluster,
            timeout,
            run_id: OnceLock::new(),
            own,
            doubted: Notify::new(),
            left_for: Mutex::default(),
        };
        Self {
            link: Arc::new(link),
            own: None,
            suspected: Arc::default(),
            watcher: OnceLock::new(),
            listener: OnceLock::new(),
            shards: Arc::default(),
        }
    }

    async fn open(
        &self,
        shown: &str,
        check: impl AsyncFnOnce(&Self) -> Result<(), Error>,
    ) -> Result<OwnTask, Error> {
        let open = pin!(self.try_open(shown, check));
        let look = pin!(self.link.look_if_slow());
        match future::select(open, look).await {
            Either::Left((task, _)) => self.link.explained(task).await,
            Either::Right((Some(error), _)) => Err(error),
            Either::Right((None, open)) => open.await,
        }
    }

    async fn try_open(
        &self,
        shown: &str,
        check: impl AsyncFnOnce(&Self) -> Result<(), Error>,
    ) -> Result<OwnTask, Error> {
        let link = &self.link;
        let limit = link.timeout * INIT_TIMEOUTS;
        let task = tokio::time::timeout(limit, OwnTask::connect(&link.client));
        let task = task.await.map_err(|_| {
            let message = format!("{shown} did not answer within {limit:?}");
            Error::new(ErrorKind::Timeout, message)
        })?;
        let task = task.map_err(|error| unanswered(link.secrets.convert(&error)))?;
        check(self).await?;
        Ok(task)
    }

    /// The connection for commands.
    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// What connecting found, and what was found later.
    pub(super) fn findings(&self) -> &[Finding] {
        self.link.tracking.findings()
    }

    /// Whether it was checked, and can be asked.
    pub(super) fn is_connected(&self) -> bool {
        self.own.as_ref().is_none_or(|task| task.get().is_some())
    }

    pub(super) fn execute(
        &self,
        batch: &[Op],
        give_up: Timestamp,
    ) -> impl Future<Output = Result<BatchReply, Error>> {
        self.link.execute(batch, give_up)
    }

    pub(super) fn execute_durably(
        &self,
        batch: &[Op],
        durability: &Durability,
        give_up: Timestamp,
    ) -> impl Future<Output = Result<BatchReply, Error>> {
        self.link.execute_durably(batch, durability, give_up)
    }

    /// What the server calls itself until it ends, if it says so.
    pub(super) fn run_id(&self) -> Option<String> {
        self.link.run_id.get().cloned()
    }

    /// Tells the engine when the link goes and when it is back; and begins to connect, if that was left
    /// for later.
    pub(super) fn watch_link(&self, driver: &Arc<Driver>, seat: Seat) {
        let watch = self.link.clone().follow(self.is_connected(), seat);
        let watcher = driver.runtime.spawn(watch).abort_handle();
        self.watcher
            .set(watcher)
            .expect("the link is watched from the start, once");
        if let Some(task) = &self.own {
            task.get_or_init(|| OwnTask::start(&self.link.client));
        }
    }

    /// Listens, in the background, to what the server tells this client.
    pub(super) fn subscribe(&self, driver: &Arc<Driver>, seat: Seat) {
        let channels = (driver.channel.clone(), self.shards.clone());
        let tracking = driver.tracking.then(|| self.link.tracking.clone());
        let commands = self.link.client.clone();
        let listening = listener::listen(commands, tracking, channels, seat);
        let listener = driver.runtime.spawn(listening).abort_handle();
        self.listener
            .set(listener)
            .expect("the engine asks for a subscription once");
    }

    /// Hears of what is published at the node of this lock alone.
    pub(super) fn listen_at_shard(&self, key: &LockKey) {
        self.shards.add(key);
    }

    /// Reads these keys, so that the server says when others change them.
    pub(super) fn watch(&self, keys: Vec<LockKey>, driver: &Arc<Driver>, seat: Seat) {
        let tracking = self.link.tracking.clone();
        driver.runtime.spawn(async move {
            tracking.read(keys, &seat).await;
        });
    }

    pub(super) async fn close(&self) {
        for task in [&self.watcher, &self.listener] {
            task.get().inspect(|task| task.abort());
        }
        if let Some(task) = &self.own {
            // fred's `quit` may hang while it reconnects, and its task may go on after it.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.link.client.quit()).await;
            task.get().inspect(|task| task.abort());
        }
    }

    /// Replaces the connection, unless that is under way, or it is the program's. fred itself finds no
    /// connection silent while something is written to it, such as a trickle of renewals.
    pub(super) fn suspect(&self, why: Suspicion, runtime: &Handle) {
        if self.own.is_none() || self.suspected.swap(true, Ordering::AcqRel) {
            return;
        }
        let (link, suspected) = (self.link.clone(), self.suspected.clone());
        if sentinels::found(&link.client) {
            link.doubted.notify_one();
        }
        runtime.spawn(async move {
            let is_kept = match why {
                // Short time-outs alone say little.
                Suspicion::Silent => answers(&link.client).await && !link.is_deposed().await,
                // It answers well all the same.
                Suspicion::Demoted => false,
            };
            if !is_kept {
                tracing::debug!(target: "leasehold", ?why, "replacing the connection");
                link.reconnect().await;
            }
            suspected.store(false, Ordering::Release);
        });
    }
}

/// Whether the server is one that can keep locks, and what endangers leases there.
pub(super) async fn check_server(
    client: &Client,
    secrets: &Secrets,
    (run_id, of_cluster): (&OnceLock<String>, bool),
    timeout: Duration,
) -> Result<Vec<Finding>, Error> {
    let info: String = match ask_info(client, timeout).await {
        Some(Ok(info)) => info,
        Some(Err(error)) if !protocol::info_is_withheld(error.details()) => {
            return Err(secrets.convert(&error));
        }
        None | Some(Err(_)) => {
            return Ok(info::is_withheld());
        }
    };
    let findings = info::check(&info, run_id)?;
    if !of_cluster && info::is_of_cluster(&info) {
        let message = "the server is a node of a cluster; connect to redis-cluster://";
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(findings)
}

async fn ask_info(client: &Client, timeout: Duration) -> Option<Result<String, FredError>> {
    // fred asks for the version whenever it connects: who may not look is not refused once more.
    client.server_version()?;
    let options = options(timeout);
    Some(client.with_options(&options).info(None).await)
}

/// Sends a script's call, once, and waits so long for its answer. The script or its hash comes
/// first, then the number of keys, then the keys, of which the first decides on a cluster's node.
pub(crate) async fn send_script<R: FromValue>(
    client: &Client,
    command: &'static str,
    args: Vec<Value>,
    left: Duration,
) -> Result<R, FredError> {
    let options = options(left);
    let command = CustomCommand::new_static(command, ClusterHash::Offset(2), false);
    client.with_options(&options).custom(command, args).await
}

/// The same at a node of a cluster that takes over the slot, and does not have it yet.
pub(super) async fn send_script_asking<R: FromValue>(
    client: &Client,
    command: &'static str,
    args: Vec<Value>,
    left: Duration,
) -> Result<R, FredError> {
    let pipeline = client.pipeline();
    for (command, args) in [("ASKING", vec![]), (command, args)] {
        let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
        let _queued: Value = pipeline.custom(command, args).await?;
    }
    let replies = tokio::time::timeout(left, pipeline.try_all::<Value>()).await;
    let late = |_| FredError::new(FredErrorKind::Timeout, "no reply");
    // A user who may not ask so is told, and not only that the slot is elsewhere.
    let replies = replies.map_err(late)?.into_iter();
    let reply = replies.collect::<Result<Vec<_>, _>>()?.pop();
    let nothing = || FredError::new(FredErrorKind::Canceled, "nothing was sent");
    reply.ok_or_else(nothing)?.convert()
}

/// Whether a PING is answered in whatever way.
async fn answers(client: &Client) -> bool {
    let client = client.with_options(&options(PING_TIMEOUT));
    match client.ping::<Value>(None).await {
        Ok(_) => true,
        Err(error) => is_answer(&error),
    }
}

pub(super) fn options(timeout: Duration) -> Options {
    // fred takes zero for "none".
    let timeout = timeout.max(Duration::from_millis(1));
    Options {
        max_attempts: Some(1),
        timeout: Some(timeout),
        ..Options::default()
    }
}
