//! A Redis server through the fred client.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use ::fred::bytes::Bytes;
use ::fred::clients::Client;
use ::fred::error::{Error as FredError, ErrorKind as FredErrorKind};
use ::fred::interfaces::{ClientLike, EventInterface};
use ::fred::types::config::{Config, Options, ReconnectPolicy};
use ::fred::types::{Builder, ClusterHash, CustomCommand, FromValue, Value};
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::BroadcastStream;

use super::clock::Clock;
use super::tracking::Tracking;
use super::{Driver, Input, ServerId, listener};
use crate::engine::Suspicion;
use crate::error::{Error, ErrorKind};
use crate::finding::Finding;
use crate::protocol::{self, BatchReply, LockKey, Op, server_error};
use crate::rt;
use crate::time::Timestamp;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Connecting takes several questions.
const INIT_TIMEOUT: Duration = Duration::from_secs(6);
/// How often a link that is down is looked at, if fred has no news of it.
const LINK_CHECK: Duration = Duration::from_secs(1);

const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How many commands fred may hold back. The engine gives up on each after its time-out.
const MAX_COMMANDS: usize = 65_536;

const PING_TIMEOUT: Duration = Duration::from_secs(1);

const CONNECTED: Input = Input::Connected {
    server: ServerId::ONLY,
};

pub(crate) struct FredStore {
    client: Client,
    secrets: Secrets,
    /// If this crate made the client and so decides over its connection.
    task: Option<OwnTask>,
    /// Whether the connection is being looked at or replaced already.
    suspected: Arc<AtomicBool>,
    watcher: OnceLock<AbortHandle>,
    listener: OnceLock<AbortHandle>,
    tracking: Arc<Tracking>,
}

impl FredStore {
    pub(super) async fn connect(config: Config, shown: String) -> Result<Self, Error> {
        let secrets = Secrets(config.password.clone());
        let named = |cause: Error| cause.of(&shown);
        let client = Builder::from_config(config)
            .with_connection_config(|connection| {
                connection.connection_timeout = CONNECT_TIMEOUT;
                connection.internal_command_timeout = CONNECT_TIMEOUT;
                // A command that is sent twice is decided on by the engine, not by the client.
                connection.max_command_attempts = 1;
                connection.max_command_buffer_len = MAX_COMMANDS;
                connection.tcp.nodelay = Some(true);
            })
            .set_policy(ReconnectPolicy::new_exponential(0, 50, 2_000, 2))
            .build()
            .map_err(|error| named(secrets.convert(&error)))?;
        let task = tokio::time::timeout(INIT_TIMEOUT, OwnTask::connect(&client))
            .await
            .map_err(|_| {
                let message = format!("{shown} did not answer within {INIT_TIMEOUT:?}");
                Error::new(ErrorKind::Timeout, message)
            })?
            .map_err(|error| named(unanswered(secrets.convert(&error))))?;
        Self::checked(client, Some(task)).await.map_err(named)
    }

    pub(super) async fn with_client(client: Client) -> Result<Self, Error> {
        if client.is_clustered() {
            let message = "the client is of a cluster, which is not supported yet";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Self::checked(client, None).await
    }

    async fn checked(client: Client, task: Option<OwnTask>) -> Result<Self, Error> {
        let secrets = Secrets::of(&client);
        let found = check_server(&client, &secrets).await.map_err(unanswered)?;
        let store = Self {
            secrets,
            tracking: Arc::new(Tracking::new(client.clone(), task.is_some(), found)),
            client,
            task,
            suspected: Arc::default(),
            watcher: OnceLock::new(),
            listener: OnceLock::new(),
        };
        // Loads the script, and finds out whether this user may run it.
        let probe = store.execute(&[], rt::now() + CONNECT_TIMEOUT).await;
        probe.map_err(unanswered)?;
        Ok(store)
    }

    /// What connecting found, and what was found later.
    pub(super) fn findings(&self) -> &[Finding] {
        self.tracking.findings()
    }

    pub(super) async fn execute(
        &self,
        batch: &[Op],
        give_up: Timestamp,
    ) -> Result<BatchReply, Error> {
        // A future that has a name before it is awaited is kept twice in this one, and fred's is large.
        let mut answer = self
            .run("EVALSHA", protocol::SCRIPT_SHA, batch, give_up)
            .await;
        if let Err(error) = &answer
            && protocol::script_is_missing(error.details())
        {
            answer = self.run("EVAL", protocol::SCRIPT, batch, give_up).await;
        }
        let answer = answer.map_err(|error| self.secrets.convert(&error))?;
        protocol::decode(batch, &answer)
    }

    async fn run(
        &self,
        command: &'static str,
        script: &str,
        batch: &[Op],
        give_up: Timestamp,
    ) -> Result<Vec<Bytes>, FredError> {
        let (text, ends, keys) = protocol::encode(batch).into_parts();
        let text = Bytes::from(text);
        let mut args: Vec<Value> = Vec::with_capacity(2 + ends.len());
        args.push(script.into());
        args.push(i64::try_from(keys).unwrap_or(i64::MAX).into());
        let mut begin = 0;
        args.extend(ends.into_iter().map(|end| {
            let part = text.slice(begin..end);
            begin = end;
            Value::Bytes(part)
        }));
        send_script(&self.client, command, args, give_up.since(rt::now())).await
    }

    /// Tells the engine when the link goes and when it is back.
    pub(super) fn watch_link(&self, driver: &Arc<Driver>) {
        let secrets = self.secrets.clone();
        let errors = BroadcastStream::new(self.client.error_rx()).map(move |error| match error {
            Ok((error, _)) => Input::Disconnected {
                server: ServerId::ONLY,
                error: secrets.convert(&error),
            },
            // Something was missed. A fresh start is right whatever it was.
            Err(_) => CONNECTED,
        });
        let connects = BroadcastStream::new(self.client.reconnect_rx()).map(|_| CONNECTED);
        let changes = futures::stream::select(errors, connects);
        let watch = follow_link(changes, self.client.clone(), Arc::downgrade(driver));
        let watcher = driver.runtime.spawn(watch).abort_handle();
        self.watcher
            .set(watcher)
            .expect("the link is watched from the start, once");
    }

    /// Listens, in the background, to what the server tells this client.
    pub(super) fn subscribe(&self, driver: &Arc<Driver>) {
        let channel = driver.channel.clone();
        let tracking = driver.tracking.then(|| self.tracking.clone());
        let commands = self.client.clone();
        let listening = listener::listen(commands, tracking, channel, Arc::downgrade(driver));
        let listener = driver.runtime.spawn(listening).abort_handle();
        self.listener
            .set(listener)
            .expect("the engine asks for a subscription once");
    }

    /// Reads these keys, so that the server says when others change them.
    pub(super) fn watch(&self, keys: Vec<LockKey>, driver: &Arc<Driver>) {
        let (tracking, weak) = (self.tracking.clone(), Arc::downgrade(driver));
        driver.runtime.spawn(async move {
            tracking.read(keys, &weak).await;
        });
    }

    pub(super) async fn close(&self) {
        for task in [&self.watcher, &self.listener] {
            task.get().inspect(|task| task.abort());
        }
        if let Some(task) = &self.task {
            // fred's `quit` may hang while it reconnects, and its task may go on after it.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.client.quit()).await;
            task.0.abort();
        }
    }

    /// Replaces the connection, unless that is under way, or it is the program's. fred itself finds no
    /// connection silent while something is written to it, such as a trickle of renewals.
    pub(super) fn suspect(&self, why: Suspicion, runtime: &Handle) {
        if self.task.is_none() || self.suspected.swap(true, Ordering::AcqRel) {
            return;
        }
        let (client, suspected) = (self.client.clone(), self.suspected.clone());
        runtime.spawn(async move {
            let is_kept = match why {
                // Short time-outs alone say little.
                Suspicion::Silent => answers(&client).await,
                // It answers well all the same.
                Suspicion::Demoted => false,
            };
            if !is_kept {
                tracing::debug!(?why, "replacing the connection");
                let _ = tokio::time::timeout(CONNECT_TIMEOUT, client.force_reconnection()).await;
            }
            suspected.store(false, Ordering::Release);
        });
    }
}

async fn check_server(client: &Client, secrets: &Secrets) -> Result<Vec<Finding>, Error> {
    let info: String = match info(client).await {
        Some(Ok(info)) => info,
        Some(Err(error)) if !protocol::info_is_withheld(error.details()) => {
            return Err(secrets.convert(&error));
        }
        None | Some(Err(_)) => {
            tracing::warn!("the server's version could not be checked");
            return Ok(Vec::new());
        }
    };
    protocol::check_server(&info)?;
    let findings = Finding::all(&info);
    for finding in &findings {
        tracing::warn!("{finding}");
    }
    Ok(findings)
}

async fn info(client: &Client) -> Option<Result<String, FredError>> {
    // fred asks for the version whenever it connects: who may not look is not refused once more.
    client.server_version()?;
    let options = options(CONNECT_TIMEOUT);
    Some(client.with_options(&options).info(None).await)
}

/// The task of a client that this crate made, which drives its connection. Both end with this.
pub(super) struct OwnTask(AbortHandle);

impl OwnTask {
    /// Connects. As fred's `init`, which leaves the task behind if its future is dropped.
    pub(super) async fn connect(client: &Client) -> Result<Self, FredError> {
        let mut connected = pin!(client.wait_for_connect());
        // It listens from its first poll on, and so hears of whatever comes of the connection.
        let early = futures::poll!(&mut connected);
        let task = Self(client.connect().abort_handle());
        match early {
            Poll::Ready(result) => result?,
            Poll::Pending => connected.await?,
        }
        Ok(task)
    }
}

impl Drop for OwnTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow_link(
    mut changes: impl Stream<Item = Input> + Unpin,
    client: Client,
    driver: Weak<Driver>,
) {
    let mut down = false;
    while driver.strong_count() > 0 {
        let change = if down {
            tokio::select! {
                biased;
                change = changes.next() => change,
                // Not every error that fred reports ends the connection; no news follows then.
                () = Clock::Machine.sleep(LINK_CHECK) => {
                    if !client.is_connected() {
                        continue;
                    }
                    Some(CONNECTED)
                }
            }
        } else {
            changes.next().await
        };
        let (Some(input), Some(driver)) = (change, driver.upgrade()) else {
            break;
        };
        tracing::debug!(?input, "the link changed");
        down = matches!(input, Input::Disconnected { .. });
        driver.feed(input);
    }
}

/// Sends a script's call, once, and waits so long for its answer. The script or its hash comes
/// first, then the number of keys, then the keys, of which the first decides on a cluster's node.
pub(crate) async fn send_script<R: FromValue>(
    client: &Client,
    command: &'static str,
    args: Vec<Value>,
    left: Duration,
) -> Result<R, FredError> {
    // fred takes zero for "none".
    let options = options(left.max(Duration::from_millis(1)));
    let command = CustomCommand::new_static(command, ClusterHash::Offset(2), false);
    client.with_options(&options).custom(command, args).await
}

/// Whether a PING is answered in whatever way.
async fn answers(client: &Client) -> bool {
    let client = client.with_options(&options(PING_TIMEOUT));
    match client.ping::<Value>(None).await {
        Ok(_) => true,
        Err(error) => is_answer(&error),
    }
}

/// Whether a server said this, which proves the link: all its errors begin with a code such as
/// `NOPERM`, and none of fred's own does.
pub(super) fn is_answer(error: &FredError) -> bool {
    let code = error.details().split(' ').next().unwrap_or_default();
    !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase())
}

fn options(timeout: Duration) -> Options {
    Options {
        max_attempts: Some(1),
        timeout: Some(timeout),
        ..Options::default()
    }
}

/// Of a question that asks for nothing to be done.
fn unanswered(error: Error) -> Error {
    if error.is_timeout() {
        return Error::new(error.kind(), "the server did not answer in time");
    }
    error
}

/// fred shows the operating system's errors in their debug form.
fn plain(details: &str) -> &str {
    let quoted = |field: &str| {
        let (_, rest) = details.split_once(field)?;
        rest.split_once('"').map(|(text, _)| text)
    };
    quoted("message: \"")
        .or_else(|| quoted("error: \""))
        .unwrap_or(details)
}

/// What must not be shown: servers echo commands, AUTH among them.
#[derive(Clone)]
pub(crate) struct Secrets(Option<String>);

impl Secrets {
    pub(crate) fn of(client: &Client) -> Self {
        Self(client.client_config().password)
    }

    /// Whether the error's own words must not be shown.
    pub(crate) fn hide(&self, error: &FredError) -> bool {
        let secret =
            |password: &String| !password.is_empty() && error.details().contains(password.as_str());
        self.0.as_ref().is_some_and(secret)
    }

    pub(crate) fn convert(&self, error: &FredError) -> Error {
        let details = plain(error.details());
        if let Some(refusal) = protocol::credentials_refused(details) {
            refusal
        } else if self.hide(error) {
            let instead = "(its message has the password in it and is not shown)";
            convert(error, instead, None)
        } else {
            convert(error, details, Some(error.clone()))
        }
    }
}

/// The cause is kept where fred itself says it; what a server said has its place in the message.
fn convert(error: &FredError, details: &str, cause: Option<FredError>) -> Error {
    let kind = match error.kind() {
        FredErrorKind::Timeout => return Error::no_answer(),
        FredErrorKind::Backpressure => ErrorKind::Overloaded,
        FredErrorKind::IO
        | FredErrorKind::Canceled
        | FredErrorKind::Routing
        | FredErrorKind::Cluster
        | FredErrorKind::Sentinel => ErrorKind::Unavailable,
        FredErrorKind::Protocol | FredErrorKind::Parse => ErrorKind::Store,
        // fred's own words, which no server said.
        _ if details.starts_with("Failed to") || details.starts_with("Too many failed") => {
            ErrorKind::Unavailable
        }
        _ => return classified(error, details),
    };
    let message = match kind {
        ErrorKind::Overloaded => format!("too many commands wait for the connection: {details}"),
        ErrorKind::Store => {
            let message = format!("the store's answer could not be read: {details}");
            return Error::new(kind, message);
        }
        _ => format!("the store cannot be reached: {details}"),
    };
    match cause {
        Some(cause) => Error::with_source(kind, message, cause),
        None => Error::new(kind, message),
    }
}

/// A server's refusal: what it means is seen by its own words, even if they are not shown.
fn classified(error: &FredError, shown: &str) -> Error {
    let kind = server_error(plain(error.details()), None).kind();
    let said = server_error(shown, None);
    if said.kind() == kind {
        return said;
    }
    Error::new(kind, format!("the server refused {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_operating_system_are_shown_plainly() {
        let debug = "Os { code: 111, kind: ConnectionRefused, message: \"Connection refused\" }";
        assert_eq!(plain(debug), "Connection refused");
        let debug = "Custom { kind: Uncategorized, error: \"failed to lookup\" }";
        assert_eq!(plain(debug), "failed to lookup");
        assert_eq!(plain("Unexpected EOF"), "Unexpected EOF");
    }

    fn said(details: &'static str) -> FredError {
        FredError::new(FredErrorKind::Unknown, details)
    }

    #[test]
    fn whatever_a_server_says_is_an_answer_and_nothing_else_is() {
        for details in [
            "NOPERM User poor has no permissions to run the 'ping' command",
            "BUSY Redis is busy running a script",
            "ERR unknown command 'PING'",
        ] {
            assert!(is_answer(&said(details)), "{details}");
        }
        for details in [
            "",
            "Request timed out.",
            "Canceled",
            "Os { code: 104, kind: ConnectionReset, message: \"Connection reset by peer\" }",
            "Failed to send command",
        ] {
            assert!(!is_answer(&said(details)), "{details}");
        }
    }

    /// Catches a reason that is hidden because a word of it is the password.
    #[test]
    fn refused_credentials_are_told_in_our_own_words() {
        let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
        for password in ["password", "pass", "user", "invalid", "a"] {
            let secrets = Secrets(Some(password.to_owned()));
            let error = secrets.convert(&said(wrong));
            assert_eq!(error.kind(), ErrorKind::Auth);
            assert_eq!(
                error.to_string(),
                "the server refused the user or password (WRONGPASS); check the user and password \
                 in the URL"
            );
            let error = secrets.convert(&said(
                "ERR unknown command 'AUTH' 'password' 'user' 'invalid'",
            ));
            assert!(error.to_string().contains("is not shown"), "{error}");
        }
        let echoed = said("WRONGPASS s3cret is not the password");
        let error = Secrets(None).convert(&echoed).to_string();
        assert!(
            !error.contains("s3cret"),
            "nothing of the server's is shown: {error}"
        );
    }
}
