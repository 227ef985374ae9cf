//! Receives pushes from a Redis server, on a separate connection.

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
use futures::FutureExt;
use leasehold_engine::protocol::{LockKey, shard_channel};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

pub(super) use self::shards::Shards;

use self::shards::Changes;
use super::Fred;
use super::own_task::OwnTask;
use crate::adapter::Hearing;
use crate::adapter::room::{Room, Stop};
use crate::clock::Clock;

const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which the connection is checked.
const CHECK: Duration = Duration::from_secs(10);
const CHECK_IF_DOWN: Duration = Duration::from_secs(1);
/// The pause before the next attempt if the server refuses the subscription.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const SLOWEST_RETRY: Duration = Duration::from_secs(30);

/// The pauses, in milliseconds, between checks whether the server has the subscription.
const PAUSES: [u64; 8] = [2, 4, 8, 16, 32, 64, 128, 256];

/// The message that this client sends itself on its channel, to learn whether it still receives.
const ECHO: &str = "echo";

/// Creates a client with the settings of the command connection.
fn connect(client: &Client, room: Room) -> Result<Client, FredError> {
    let mut config = client.client_config();
    // With RESP3, fred does not report that all keys may have changed.
    config.version = RespVersion::RESP2;
    // Return an error of the first connection; `listen` tries again after a pause.
    config.fail_fast = true;
    let performance = PerformanceConfig {
        default_command_timeout: COMMAND_TIMEOUT,
        broadcast_channel_capacity: room.pushes(),
        ..PerformanceConfig::default()
    };
    let mut builder = Builder::from_config(config);
    builder
        .set_performance_config(performance)
        .set_connection_config(client.connection_config().clone())
        .set_policy(ReconnectPolicy::new_exponential(0, 50, 2_000, 2))
        .build()
}

/// An event of the connection.
enum Change {
    /// Nothing happened; the connection may be dead.
    None,
    /// A push arrived, and was reported.
    News,
    /// This client's own echo arrived.
    Echo,
    Missed,
    Up,
    Down,
    Over,
}

/// The receivers of the connection's events.
struct Events {
    messages: Receiver<Message>,
    changes: Receiver<Invalidation>,
    /// A change to report after all messages that the server sent before it: these say why it happened.
    change: Option<Invalidation>,
    errors: Receiver<(FredError, Option<Server>)>,
    /// Reconnects of the command connection.
    links: Receiver<Server>,
}

impl Events {
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
    room: Room,
    /// The command connection: a connection takes no other commands while it is subscribed.
    commands: &'a Fred,
    channel: &'a str,
    hearing: &'a Hearing,
}

impl<'a> Listener<'a> {
    /// Listens until the locker has ended. Failures do not end the locker: without pushes waiters only poll
    /// more often.
    pub(super) async fn listen(commands: &'a Fred, channel: &'a str, hearing: &'a Hearing) {
        let (mut pause, mut room) = (FIRST_RETRY, Room::FIRST);
        while hearing.0.is_open() {
            let heard = match connect(&commands.client, room) {
                Ok(client) => {
                    let listener = Listener {
                        client,
                        room,
                        commands,
                        channel,
                        hearing,
                    };
                    listener.hear().await
                }
                Err(error) => Err((false, error)),
            };
            let (subscribed, error) = match heard {
                Ok(Stop::Over) => return,
                Ok(Stop::Missed) => {
                    room = room.larger();
                    let room = room.pushes();
                    tracing::debug!(target: "leasehold", room, "pushes were missed; reconnecting with more room");
                    // Once subscribed again, every waiter asks and every holder checks its lock.
                    hearing.unsubscribed();
                    continue;
                }
                Err(failed) => failed,
            };
            // fred's message may contain what the server echoed, so show only the kind.
            let kind = error.kind();
            tracing::warn!(
                target: "leasehold",
                ?kind,
                "pushes cannot be received; waiters poll every second instead"
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

    /// Listens until it has to stop. An error comes with true if the subscription had succeeded.
    async fn hear(&self) -> Result<Stop, (bool, FredError)> {
        let mut events = Events::of(self);
        // Boxed while they run, as below: they are rare and large.
        let _connection = Box::pin(OwnTask::connect(&self.client))
            .await
            .map_err(|error| (false, error))?;
        // Subscribe after the first connection, to hear of later ones only.
        let mut reconnects = self.client.reconnect_rx();
        Box::pin(self.subscribe())
            .await
            .map_err(|error| (false, error))?;
        self.hear_on(&mut events, &mut reconnects).await
    }

    /// Listens on a connection that is subscribed.
    async fn hear_on(
        &self,
        events: &mut Events,
        reconnects: &mut Receiver<Server>,
    ) -> Result<Stop, (bool, FredError)> {
        let (mut hears, mut asked) = (true, false);
        let mut check = Box::pin(Clock::Machine.sleep(CHECK));
        while self.hearing.0.is_open() {
            let change = tokio::select! {
                biased;
                change = events.next(self) => change,
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
                Change::None => {
                    asked = Box::pin(self.check())
                        .await
                        .map_err(|error| (true, error))?;
                }
                Change::Missed if !self.room.is_largest() => {
                    // The messages that are left say why leases were lost.
                    for _ in 0..self.room.pushes() {
                        if events.next(self).now_or_never().is_none() {
                            break;
                        }
                    }
                    return Ok(Stop::Missed);
                }
                Change::Missed => self.hearing.missed(),
                Change::Up => {
                    Box::pin(self.subscribe())
                        .await
                        .map_err(|error| (true, error))?;
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
        Ok(Stop::Over)
    }

    async fn subscribe(&self) -> Result<(), FredError> {
        self.commands.shards.clear();
        self.client.subscribe(self.channel).await?;
        // `subscribe` returns before the server has the subscription, and even if it refuses.
        let mut pauses = PAUSES.into_iter();
        loop {
            let Some(pause) = pauses.next() else {
                self.hearing.refused();
                return Err(refused());
            };
            Clock::Machine.sleep(Duration::from_millis(pause)).await;
            if self.is_heard().await? {
                break;
            }
        }
        self.hearing.subscribed();
        self.track();
        Ok(())
    }

    /// Subscribes to channels of locks and leaves others, in the background. If that fails, the client's own
    /// channel serves these locks too.
    fn follow(&self, Changes { begun, ended }: Changes) {
        let channels = |keys: Vec<LockKey>| -> Vec<String> {
            let names = keys.iter().map(|key| shard_channel(self.channel, key));
            names.collect()
        };
        let (client, begun, ended) = (self.client.clone(), channels(begun), channels(ended));
        tokio::spawn(async move {
            // One command cannot name channels of several slots.
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
                tracing::debug!(target: "leasehold", ?kind, "a lock's shard channel cannot be subscribed to");
            }
        });
    }

    /// Checks the connection. Returns true if an echo should arrive soon. A user who may not publish gets no
    /// echo; then a silent connection is kept.
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

    /// Reports whether changes by other clients can be heard, and on which connection.
    fn track(&self) {
        // fred takes an unknown push for the reply to some command.
        if self.commands.client.protocol_version() == RespVersion::RESP3 {
            let reason = "the command connection speaks RESP3";
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
        // An empty list is how fred reports that all keys may have changed.
        if invalidation.keys.is_empty() {
            self.hearing.changed(None);
        }
        for key in &invalidation.keys {
            self.hearing.changed(Some(key.as_bytes()));
        }
    }
}

fn in_time<T>(
    command: impl Future<Output = Result<T, FredError>>,
) -> impl Future<Output = Result<T, FredError>> {
    super::in_time(COMMAND_TIMEOUT, command).map(|done| done.and_then(|done| done))
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

#[cfg(test)]
mod tests {
    use ::fred::types::MessageKind;
    use tokio::sync::broadcast;

    use super::*;
    use crate::adapter::reports::Reports;

    /// Hears two messages that arrive before the first is read, with room for one. Returns why it stopped, and
    /// what it reported until then.
    async fn hear_too_late(room: Room) -> (Stop, Vec<String>) {
        let client = || Builder::default_centralized().build().expect("valid");
        let commands = Fred::of_program(client(), COMMAND_TIMEOUT);
        let (hearing, reports) = Reports::hearing();
        let listener = Listener {
            client: client(),
            room,
            commands: &commands,
            channel: "channel",
            hearing: &hearing,
        };
        let (sender, messages) = broadcast::channel(1);
        let mut events = Events {
            messages,
            ..Events::of(&listener)
        };
        let mut reconnects = listener.client.reconnect_rx();
        for value in ["first", "second"] {
            let (channel, value) = ("channel".into(), value.into());
            let kind = MessageKind::Message;
            let server = Server::new("localhost", 6_379);
            let message = Message {
                channel,
                value,
                kind,
                server,
            };
            sender.send(message).expect("the listener exists");
        }
        // The listener stops once it has taken in both.
        drop(sender);
        let heard = listener.hear_on(&mut events, &mut reconnects).await;
        (heard.expect("the connection is up"), reports.all())
    }

    /// Catches a listener that missed messages and changes and tells nobody, or only the waiters: a fixed lease
    /// has no renewal that would notice.
    #[tokio::test]
    async fn whatever_was_missed_is_checked() {
        let (stop, reports) = hear_too_late(Room::LARGEST).await;
        assert!(matches!(stop, Stop::Over));
        assert_eq!(reports, ["Subscribed", "Changed(None)", "Message(second)"]);
    }

    /// Catches messages that are dropped, though they arrived, because others were missed.
    #[tokio::test]
    async fn a_listener_that_needs_more_room_reports_what_it_has() {
        let (stop, reports) = hear_too_late(Room::FIRST).await;
        assert!(matches!(stop, Stop::Missed));
        assert_eq!(reports, ["Message(second)"]);
    }
}
