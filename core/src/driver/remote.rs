//! A Redis server, through an adapter.

mod tracking;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::fred::bytes::Bytes;
use leasehold_engine::engine::Input;
use leasehold_engine::protocol::{self, BatchReply, Durability, LockKey, Op};
use leasehold_engine::time::Timestamp;
use leasehold_engine::{Error, ErrorKind, Finding};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use self::tracking::Tracking;

use super::Driver;
use super::sink::ServerSink;
use crate::adapter::fred::{Fred, Target};
use crate::adapter::{
    Adapter, CallError, Command, Hearing, Link, Report, Sink, Suspicion, Way, unanswered,
};
use crate::rt;

/// The timeout of the first requests through a program's own adapter.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The reason of the finding that no pushes arrive.
const DEAF: &str = "the user may hear no pushes (&leasehold:*), so waiters ask every second, too";

pub(crate) struct Remote {
    adapter: Arc<dyn Adapter>,
    /// The adapter, if it is fred: batches are sent to it without boxing futures.
    fred: Option<Arc<Fred>>,
    /// True if the server is a node of a cluster.
    is_node: bool,
    /// The timeout of each of the first requests.
    timeout: Duration,
    /// The findings of the check.
    findings: OnceLock<Vec<Finding>>,
    tracking: Tracking,
    /// True if the user may not subscribe to the locker's channel.
    is_deaf: AtomicBool,
    run_id: OnceLock<String>,
    watcher: OnceLock<AbortHandle>,
    listener: OnceLock<AbortHandle>,
}

/// The texts of a reply, as the client returns them.
enum Texts {
    Fred(Vec<Bytes>),
    Other(Vec<Vec<u8>>),
}

/// Connecting, and checking the server.
impl Remote {
    /// Connects to a standalone server.
    pub(super) async fn connect(target: Target) -> Result<Self, Error> {
        let shown = target.shown.clone();
        let (fred, remote) = Self::unconnected(target, false, true)?;
        remote.open(&fred, &shown).await?;
        Ok(remote)
    }

    /// Connects its client, and checks the server.
    pub(super) async fn open(&self, fred: &Fred, shown: &str) -> Result<(), Error> {
        // Boxed, because the future is large and exists once per locker.
        Box::pin(fred.open(shown, async || self.check().await)).await
    }

    /// Creates a store and its client. It connects by [`open`](Self::open), or once its link is
    /// [watched](Self::watch_link); the latter retries, unless the client fails fast.
    pub(super) fn unconnected(
        target: Target,
        is_node: bool,
        fail_fast: bool,
    ) -> Result<(Arc<Fred>, Self), Error> {
        let timeout = target.timeout;
        let fred = Arc::new(Fred::make(target, fail_fast)?);
        Ok((fred.clone(), Self::of_fred(fred, is_node, timeout)))
    }

    /// Uses a client that is connected already.
    pub(super) fn of_fred(fred: Arc<Fred>, is_node: bool, timeout: Duration) -> Self {
        Self::new(fred.clone(), Some(fred), (is_node, timeout))
    }

    /// Uses a program's own adapter.
    pub(super) fn of_adapter(adapter: Arc<dyn Adapter>) -> Self {
        Self::new(adapter, None, (false, CHECK_TIMEOUT))
    }

    fn new(
        adapter: Arc<dyn Adapter>,
        fred: Option<Arc<Fred>>,
        (is_node, timeout): (bool, Duration),
    ) -> Self {
        let is_own = fred.as_ref().is_some_and(|fred| fred.is_own());
        Self {
            tracking: Tracking::new(adapter.clone(), is_own),
            adapter,
            fred,
            is_node,
            timeout,
            findings: OnceLock::new(),
            is_deaf: AtomicBool::new(false),
            run_id: OnceLock::new(),
            watcher: OnceLock::new(),
            listener: OnceLock::new(),
        }
    }

    /// Checks that the server can keep locks and lets this user, and collects findings.
    pub(super) async fn check(&self) -> Result<(), Error> {
        let found = self.ask_for_info().await.map_err(unanswered)?;
        // Loads the script, and fails if the user may not run it.
        let probe = self.execute(&[], rt::now() + self.timeout).await;
        probe.map_err(unanswered)?;
        let _ = self.findings.set(found);
        Ok(())
    }

    async fn ask_for_info(&self) -> Result<Vec<Finding>, Error> {
        let said = match call(&*self.adapter, Command::info(), self.timeout).await {
            Ok(said) => said,
            // A user without a right to INFO may still lock.
            Err(error) if protocol::info_is_withheld(error.said()) => {
                tracing::warn!(target: "leasehold", "the server's version could not be checked: the user may not run INFO");
                return Ok(Vec::new());
            }
            Err(error) => return Err(error.into()),
        };
        let mut findings = Vec::new();
        for info in said {
            let info = String::from_utf8_lossy(&info);
            protocol::check_server(&info, self.is_node || self.adapter.is_clustered())?;
            if let Some(id) = protocol::info_field(&info, "run_id") {
                self.run_id.get_or_init(|| id.to_owned());
            }
            findings.append(&mut Finding::all(&info));
        }
        findings.dedup();
        for finding in &findings {
            tracing::warn!(target: "leasehold", "{finding}");
        }
        Ok(findings)
    }
}

/// Executing batches.
impl Remote {
    pub(super) async fn execute(
        &self,
        batch: &[Op],
        give_up: Timestamp,
    ) -> Result<BatchReply, Error> {
        self.ask(batch, give_up, Way::Plain).await?
    }

    /// Executes a batch like [`execute`](Self::execute), and returns a refusal of the whole batch unconverted.
    pub(super) async fn ask(
        &self,
        batch: &[Op],
        give_up: Timestamp,
        way: Way,
    ) -> Result<Result<BatchReply, Error>, CallError> {
        // Await fred's futures in place: binding one to a name first takes its (large) space twice.
        let mut answer = self.send(Command::script(batch, way, true), give_up).await;
        if let Err(error) = &answer
            && protocol::script_is_missing(error.said())
        {
            answer = self.send(Command::script(batch, way, false), give_up).await;
        }
        Ok(match answer? {
            Texts::Fred(texts) => protocol::decode(batch, &texts),
            Texts::Other(texts) => protocol::decode(batch, &texts),
        })
    }

    async fn send(&self, command: Command, give_up: Timestamp) -> Result<Texts, CallError> {
        let left = give_up.since(rt::now());
        if let Some(fred) = &self.fred {
            return fred.send(command.within(left)).await.map(Texts::Fred);
        }
        let called = Box::pin(call(&*self.adapter, command, left));
        called.await.map(Texts::Other)
    }

    /// Executes a batch. Its effects count only if there are enough copies of them.
    pub(super) async fn execute_durably(
        &self,
        batch: &[Op],
        durability: &Durability,
        give_up: Timestamp,
    ) -> Result<BatchReply, Error> {
        let asked = (batch, durability);
        self.ask_durably(asked, give_up, Way::Plain).await?
    }

    /// Executes a batch like [`execute_durably`](Self::execute_durably), and returns a refusal of the whole batch
    /// unconverted.
    pub(super) async fn ask_durably(
        &self,
        (batch, durability): (&[Op], &Durability),
        give_up: Timestamp,
        way: Way,
    ) -> Result<Result<BatchReply, Error>, CallError> {
        let pair = async |is_loaded| {
            let script = Command::script(batch, way, is_loaded);
            let left = give_up.since(rt::now());
            let pair = pair(&*self.adapter, [script, Command::wait(durability)], left).await;
            pair.ok_or_else(|| {
                let message = "this client cannot wait for replicas or the disk";
                let error = Error::new(ErrorKind::Unsupported, message);
                CallError::Known(String::new(), error)
            })
        };
        let mut replies = pair(true).await?;
        if let [Err(error), _] = &replies
            && protocol::script_is_missing(error.said())
        {
            replies = pair(false).await?;
        }
        let [answer, said] = replies;
        let reply = match protocol::decode(batch, &answer?) {
            Ok(reply) => reply,
            Err(error) => return Ok(Err(error)),
        };
        let copies = said.map_err(Error::from).and_then(|said| {
            let numbers = said.iter().map(|text| number(text));
            let numbers: Option<Vec<u64>> = numbers.collect();
            durability.copies(&numbers.unwrap_or_default())
        });
        Ok(durability.weigh(reply, copies))
    }
}

/// State, and background tasks.
impl Remote {
    /// Returns true for a cluster client, whose servers each have their own clock.
    pub(super) fn is_clustered(&self) -> bool {
        self.adapter.is_clustered()
    }

    /// Returns true if the server has been checked.
    pub(super) fn is_open(&self) -> bool {
        self.fred.as_ref().is_none_or(|fred| fred.is_open())
    }

    /// Returns the findings so far.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let first = self.findings.get().into_iter().flatten();
        let deaf = self.is_deaf.load(Ordering::Acquire);
        let deaf = deaf.then(|| Finding::Untracked {
            reason: DEAF.to_owned(),
        });
        let untracked = deaf.or_else(|| self.tracking.finding().cloned());
        first.cloned().chain(untracked).collect()
    }

    /// Returns the server's run ID, if it is known.
    pub(super) fn run_id(&self) -> Option<String> {
        self.run_id.get().cloned()
    }

    /// Reports changes of the link, in the background. Begins to connect if that was deferred.
    pub(super) fn watch_link(self: &Arc<Self>, driver: &Arc<Driver>, sink: ServerSink) {
        let link = Link(Arc::new(RemoteSink::new(self, driver, sink)));
        let adapter = self.adapter.clone();
        let watching = async move { adapter.watch(link).await };
        let watcher = driver.runtime.spawn(watching).abort_handle();
        self.watcher
            .set(watcher)
            .expect("the link is watched from the start, once");
    }

    /// Listens to pushes, in the background.
    pub(super) fn subscribe(self: &Arc<Self>, driver: &Arc<Driver>, sink: ServerSink) {
        let hearing = Hearing(Arc::new(RemoteSink::new(self, driver, sink)));
        let (adapter, channel) = (self.adapter.clone(), driver.channel.clone());
        let listening = async move { adapter.listen(channel, hearing).await };
        let listener = driver.runtime.spawn(listening).abort_handle();
        self.listener
            .set(listener)
            .expect("the engine asks for a subscription once");
    }

    /// Reads these keys, so that the server reports changes by other clients.
    pub(super) fn watch(
        self: &Arc<Self>,
        keys: Vec<LockKey>,
        driver: &Arc<Driver>,
        sink: ServerSink,
    ) {
        let this = self.clone();
        driver.runtime.spawn(async move {
            this.tracking.read(keys, &sink).await;
        });
    }

    /// Tells the adapter that its connection may be useless.
    pub(super) fn suspect(&self, why: Suspicion, runtime: &Handle) {
        let adapter = self.adapter.clone();
        runtime.spawn(async move { adapter.suspect(why).await });
    }

    pub(super) async fn close(&self) {
        for task in [&self.watcher, &self.listener] {
            task.get().inspect(|task| task.abort());
        }
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.adapter.close()).await;
    }
}

/// Receives the adapter's reports.
struct RemoteSink {
    sink: ServerSink,
    remote: Arc<Remote>,
    /// True if the locker has tracking turned on.
    tracks: bool,
}

impl RemoteSink {
    fn new(remote: &Arc<Remote>, driver: &Driver, sink: ServerSink) -> Self {
        Self {
            sink,
            remote: remote.clone(),
            tracks: driver.tracking,
        }
    }
}

impl Sink for RemoteSink {
    fn take(&self, report: Report<'_>) {
        match report {
            Report::Up => self.sink.connected(),
            Report::Down(error) => self.sink.disconnected(error),
            Report::Subscribed => {
                self.remote.is_deaf.store(false, Ordering::Release);
                self.sink.subscribed();
            }
            Report::Refused => self.remote.is_deaf.store(true, Ordering::Release),
            Report::Unsubscribed => self.sink.unsubscribed(),
            Report::Message(message) => self.sink.hear(message),
            Report::Changed(key) => {
                let key = key.map(|key| str::from_utf8(key).ok().and_then(LockKey::of_lock));
                if key != Some(None) {
                    let key = key.flatten();
                    self.sink.feed(Input::Changed { key });
                }
            }
            Report::HearsChanges(id) if self.tracks => {
                let (remote, sink) = (self.remote.clone(), self.sink.clone());
                if let Some(runtime) = self.sink.runtime() {
                    runtime.spawn(async move { remote.tracking.is_heard(id, &sink).await });
                }
            }
            Report::HearsNoChanges(reason) if self.tracks => {
                let reason = protocol::printable(reason);
                self.remote.tracking.is_impossible(reason);
            }
            Report::HearsChanges(_) | Report::HearsNoChanges(_) => {}
        }
    }

    fn is_open(&self) -> bool {
        self.sink.is_open()
    }

    fn check(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        Box::pin(self.remote.check())
    }

    fn is_tracking_settled(&self) -> bool {
        !self.tracks || self.remote.tracking.is_settled()
    }
}

/// Sends a command, with a timeout.
async fn call(
    adapter: &dyn Adapter,
    command: Command,
    left: Duration,
) -> Result<Vec<Vec<u8>>, CallError> {
    let reply = tokio::time::timeout(left, adapter.call(command.within(left))).await;
    reply.unwrap_or(Err(CallError::TimedOut))
}

/// Sends two commands as one, with a timeout. Returns `None` if the client cannot do that.
async fn pair(
    adapter: &dyn Adapter,
    commands: [Command; 2],
    left: Duration,
) -> Option<[Result<Vec<Vec<u8>>, CallError>; 2]> {
    let [first, second] = commands.map(|command| command.within(left));
    let replies = tokio::time::timeout(left, adapter.pair(first, second)?).await;
    Some(replies.unwrap_or_else(|_| [Err(CallError::TimedOut), Err(CallError::TimedOut)]))
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    str::from_utf8(text).ok()?.parse().ok()
}
