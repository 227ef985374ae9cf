//! Hears what a Redis server tells this client, on a connection of its own.

mod shards;

use std::time::Duration;

use ::fred::clients::Client;
use ::fred::error::{Error as FredError, ErrorKind};
use ::fred::interfaces::{
    ClientInterface, ClientLike, EventInterface, PubsubInterface, TrackingInterface,
};
use ::fred::types::client::Invalidation;
use ::fred::types::config::{PerformanceConfig, ReconnectPolicy, Server};
use ::fred::types::{Builder, Message, RespVersion};
use leasehold_engine::protocol::{LockKey, shard_channel};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

pub(super) use self::shards::Shards;

use self::shards::Changes;
use super::Fred;
use super::own_task::OwnTask;
use crate::adapter::Hearing;
use crate::clock::Clock;

/// How many messages may wait to be read before some are missed and everyone asks again.
const CAPACITY: usize = 4_096;
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the connection is asked whether it still hears anything.
const CHECK: Duration = Duration::from_secs(10);
const CHECK_IF_DOWN: Duration = Duration::from_secs(1);
/// Waiting before the next try, if the server does not let us listen.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const SLOWEST_RETRY: Duration = Duration::from_secs(30);

/// Before each look whether the server has a subscription by now.
const PAUSES: [u64; 8] = [2, 4, 8, 16, 32, 64, 128, 256];

/// What this client says to itself on its channel, to learn whether it still hears.
const ECHO: &str = "echo";

/// A connection like the one that commands use.
fn connect(client: &Client) -> Result<Client, FredError> {
    let mut config = client.client_config();
    // By RESP3 fred does not say that everything may have changed.
    config.version = RespVersion::RESP2;
    // An error of the first connection is returned, and tried again after a pause.
    config.fail_fast = true;
    let performance = PerformanceConfig {
        default_command_timeout: COMMAND_TIMEOUT,
        broadcast_channel_capacity: CAPACITY,
        ..PerformanceConfig::default()
    };
    let mut builder = Builder::from_config(config);
    builder
        .set_performance_config(performance)
        .set_connection_config(client.connection_config().clone())
        .set_policy(ReconnectPolicy::new_exponential(0, 50, 2_000, 2))
        .build()
}

enum Change {
    /// The connection may only seem to be there.
    None,
    /// What was heard was fed.
    News,
    /// It hears what it says to itself.
    Echo,
    Missed,
    Up,
    Down,
    Over,
}

/// What comes by itself.
struct Heard {
    messages: Receiver<Message>,
    changes: Receiver<Invalidation>,
    /// A change that is reported after all messages that the server sent before it: these say why.
    change: Option<Invalidation>,
    errors: Receiver<(FredError, Option<Server>)>,
    /// Of the connection for commands.
    links: Receiver<Server>,
}

impl Heard {
    fn of(listener: &Listener<'_>) -> Self {
        Self {
            messages: listener.client.message_rx(),
            changes: listener.client.invalidation_rx(),
            change: None,
            errors: listener.client.error_rx(),
            links: listener.commands.client.reconnect_rx(),
        }
    }

    async fn next(&mut self, listener: &Listener<'_>) -> Change {
        let missed = |error| match error {
            RecvError::Lagged(_) => Change::Missed,
            RecvError::Closed => Change::Over,
        };
        tokio::select! {
            biased;
            message = self.messages.recv() => {
                message.map_or_else(missed, |message| listener.message(&message))
            }
            () = std::future::ready(()), if self.change.is_some() => {
                if let Some(change) = self.change.take() {
                    listener.changed(&change);
                }
                Change::News
            }
            change = self.changes.recv() => change.map_or_else(missed, |change| {
                self.change = Some(change);
                Change::News
            }),
            link = self.links.recv() => match link {
                Err(RecvError::Closed) => Change::Over,
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    listener.track();
                    Change::News
                }
            },
            _ = self.errors.recv() => Change::Down,
        }
    }
}

pub(super) struct Listener<'a> {
    client: Client,
    /// The connection for commands: this one takes none while it is subscribed.
    commands: &'a Fred,
    channel: &'a str,
    hearing: &'a Hearing,
}

impl<'a> Listener<'a> {
    /// Listens until the locker is gone. It never ends the locker: without pushes waiters only ask
    /// more often.
    pub(super) async fn listen(commands: &'a Fred, channel: &'a str, hearing: &'a Hearing) {
        let mut pause = FIRST_RETRY;
        while hearing.0.is_open() {
            let heard = match connect(&commands.client) {
                Ok(client) => {
                    let listener = Listener {
                        client,
                        commands,
                        channel,
                        hearing,
                    };
                    listener.hear().await.err()
                }
                Err(error) => Some((false, error)),
            };
            let Some((subscribed, error)) = heard else {
                return;
            };
            // fred's own words may hold what the server echoed.
            let kind = error.kind();
            tracing::warn!(
                target: "leasehold",
                ?kind,
                "pushes cannot be heard; waiters ask every second instead"
            );
            hearing.unsubscribed();
            pause = if subscribed {
                FIRST_RETRY
            } else {
                (pause * 2).min(SLOWEST_RETRY)
            };
            Clock::Machine.sleep(pause).await;
        }
    }

    /// Returns when the locker is gone, or with whether it ever heard, and what went wrong.
    async fn hear(&self) -> Result<(), (bool, FredError)> {
        let mut news = Heard::of(self);
        let _connection = OwnTask::connect(&self.client)
            .await
            .map_err(|error| (false, error))?;
        // Made after the first connection, so it tells of later ones only.
        let mut reconnects = self.client.reconnect_rx();
        self.subscribe().await.map_err(|error| (false, error))?;
        let (mut hears, mut asked) = (true, false);
        let mut check = Box::pin(Clock::Machine.sleep(CHECK));
        while self.hearing.0.is_open() {
            let change = tokio::select! {
                biased;
                change = news.next(self) => change,
                changes = self.commands.shards.changes() => {
                    self.follow(changes);
                    Change::News
                }
                _ = reconnects.recv() => Change::Up,
                () = check.as_mut() => match self.client.is_connected() {
                    true if hears => Change::None,
                    // Not every error that fred reports ends the connection.
                    true => Change::Up,
                    false => Change::Down,
                },
            };
            match change {
                Change::News => continue,
                Change::Echo => asked = false,
                Change::Over => break,
                Change::None if asked => return Err((true, unheard())),
                Change::None => asked = self.check().await.map_err(|error| (true, error))?,
                Change::Missed => self.hearing.subscribed(),
                Change::Up => {
                    self.subscribe().await.map_err(|error| (true, error))?;
                    (hears, asked) = (true, false);
                }
                Change::Down => {
                    if std::mem::take(&mut hears) {
                        self.hearing.unsubscribed();
                    }
                }
            }
            let pause = match (hears, asked) {
                (true, true) => COMMAND_TIMEOUT,
                (true, false) => CHECK,
                (false, _) => CHECK_IF_DOWN,
            };
            check.set(Clock::Machine.sleep(pause));
        }
        Ok(())
    }

    async fn subscribe(&self) -> Result<(), FredError> {
        self.commands.shards.clear();
        self.client.subscribe(self.channel).await?;
        // `subscribe` returns before the server has it, and even if it refuses.
        let mut pauses = PAUSES.into_iter();
        loop {
            let pause = pauses.next().ok_or_else(refused)?;
            Clock::Machine.sleep(Duration::from_millis(pause)).await;
            if self.is_heard().await? {
                break;
            }
        }
        self.hearing.subscribed();
        self.track();
        Ok(())
    }

    /// Subscribes to channels of locks, and leaves others, in the background. Whatever does not come about is
    /// told by the client's own channel.
    fn follow(&self, Changes { begun, ended }: Changes) {
        let channels = |keys: Vec<LockKey>| -> Vec<String> {
            let names = keys.iter().map(|key| shard_channel(self.channel, key));
            names.collect()
        };
        let (client, begun, ended) = (self.client.clone(), channels(begun), channels(ended));
        tokio::spawn(async move {
            // Channels of several slots cannot be named by one command.
            let subscribed = begun.into_iter().map(|channel| client.ssubscribe(channel));
            let left = ended
                .into_iter()
                .map(|channel| client.sunsubscribe(channel));
            let all = async {
                let mut done = futures::future::join_all(subscribed).await;
                done.extend(futures::future::join_all(left).await);
                done.into_iter().collect::<Result<Vec<()>, _>>()
            };
            if let Err(error) = in_time(all).await {
                let kind = error.kind();
                tracing::debug!(target: "leasehold", ?kind, "a lock's own channel cannot be heard");
            }
        });
    }

    /// Returns whether it should hear an echo soon. Who may not publish gets none; a connection that is
    /// silent stays then.
    async fn check(&self) -> Result<bool, FredError> {
        if !self.hearing.0.is_tracking_settled() {
            self.track();
        }
        if let Ok(false) = self.is_heard().await {
            return Err(refused());
        }
        let echo = self
            .commands
            .client
            .publish::<u64, _, _>(self.channel, ECHO);
        Ok(in_time(echo).await.is_ok())
    }

    async fn is_heard(&self) -> Result<bool, FredError> {
        let counted = self.commands.client.pubsub_numsub(self.channel);
        let (_, heard): (String, u64) = in_time(counted).await?;
        Ok(heard > 0)
    }

    /// Has the server say what others change.
    fn track(&self) {
        // fred takes a push that it does not know for the reply to some command.
        if self.commands.client.protocol_version() == RespVersion::RESP3 {
            let reason = "the connection for commands speaks RESP3";
            return self.hearing.hears_no_changes(reason);
        }
        let id = self.client.connection_ids().into_values().next();
        if id.is_none() {
            let reason = "the user may not run CLIENT ID (+client|id)";
            return self.hearing.hears_no_changes(reason);
        }
        self.hearing.hears_changes(id);
    }

    fn message(&self, message: &Message) -> Change {
        if message.value.as_bytes() == Some(ECHO.as_bytes()) {
            return Change::Echo;
        }
        if let Some(text) = message.value.as_bytes() {
            self.hearing.message(text);
        }
        Change::News
    }

    fn changed(&self, invalidation: &Invalidation) {
        // As fred says it that everything may have changed.
        if invalidation.keys.is_empty() {
            self.hearing.changed(None);
        }
        for key in &invalidation.keys {
            self.hearing.changed(Some(key.as_bytes()));
        }
    }
}

async fn in_time<T>(command: impl Future<Output = Result<T, FredError>>) -> Result<T, FredError> {
    let late = |_| FredError::new(ErrorKind::Timeout, "no reply");
    tokio::time::timeout(COMMAND_TIMEOUT, command)
        .await
        .map_err(late)?
}

fn unheard() -> FredError {
    FredError::new(ErrorKind::Timeout, "nothing is heard")
}

fn refused() -> FredError {
    FredError::new(
        ErrorKind::Auth,
        "the server did not accept the subscription",
    )
}
