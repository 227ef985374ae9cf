//! Hears what a Redis server tells this client, on a connection of its own.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ::fred::clients::Client;
use ::fred::error::{Error as FredError, ErrorKind};
use ::fred::interfaces::{ClientLike, EventInterface, PubsubInterface};
use ::fred::types::config::{PerformanceConfig, ReconnectPolicy};
use ::fred::types::{Builder, Message, RespVersion};
use tokio::sync::broadcast::error::RecvError;

use super::clock::Clock;
use super::fred::{OwnTask, is_answer};
use super::{Driver, Input, ServerId};
use crate::protocol;

/// How many messages may wait to be read before some are missed and everyone asks again.
const CAPACITY: usize = 4_096;
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the connection is asked whether it still hears anything.
const CHECK: Duration = Duration::from_secs(10);
const CHECK_IF_DOWN: Duration = Duration::from_secs(1);
/// Waiting before the next try, if the server does not let us listen.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const SLOWEST_RETRY: Duration = Duration::from_secs(30);

const SUBSCRIBED: Input = Input::Subscribed {
    server: ServerId::ONLY,
};
const UNSUBSCRIBED: Input = Input::Unsubscribed {
    server: ServerId::ONLY,
};

/// Listens until the locker is gone. It never ends the locker: without pushes waiters only ask
/// more often.
pub(super) async fn listen(client: Client, channel: String, driver: Weak<Driver>) {
    let mut pause = FIRST_RETRY;
    while driver.strong_count() > 0 {
        let heard = match connect(&client) {
            Ok(client) => Listener { client }.hear(&channel, &driver).await.err(),
            Err(error) => Some((false, error)),
        };
        let Some((subscribed, error)) = heard else {
            return;
        };
        // fred's own words may hold what the server echoed.
        let kind = error.kind();
        tracing::warn!(
            ?kind,
            "pushes cannot be heard; waiters ask every second instead"
        );
        feed(&driver, UNSUBSCRIBED);
        pause = if subscribed {
            FIRST_RETRY
        } else {
            (pause * 2).min(SLOWEST_RETRY)
        };
        Clock::Machine.sleep(pause).await;
    }
}

/// A connection like the one that commands use.
fn connect(client: &Client) -> Result<Client, FredError> {
    let mut config = client.client_config();
    // So that the connection answers commands while it is subscribed.
    config.version = RespVersion::RESP3;
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
    Missed,
    Up,
    Down,
}

struct Listener {
    client: Client,
}

impl Listener {
    /// Returns when the locker is gone, or with whether it ever heard, and what went wrong.
    async fn hear(&self, channel: &str, driver: &Weak<Driver>) -> Result<(), (bool, FredError)> {
        let client = &self.client;
        let (mut messages, mut errors) = (client.message_rx(), client.error_rx());
        let _connection = OwnTask::connect(client)
            .await
            .map_err(|error| (false, error))?;
        // Made after the first connection, so it tells of later ones only.
        let mut reconnects = client.reconnect_rx();
        self.subscribe(channel)
            .await
            .map_err(|error| (false, error))?;
        feed(driver, SUBSCRIBED);
        let (mut hears, mut check) = (true, Box::pin(Clock::Machine.sleep(CHECK)));
        while driver.strong_count() > 0 {
            let news = tokio::select! {
                biased;
                message = messages.recv() => match message {
                    Ok(message) => {
                        push(driver, &message);
                        continue;
                    }
                    Err(RecvError::Lagged(_)) => Change::Missed,
                    Err(RecvError::Closed) => break,
                },
                _ = errors.recv() => Change::Down,
                _ = reconnects.recv() => Change::Up,
                () = check.as_mut() => match client.is_connected() {
                    true if hears => Change::None,
                    // Not every error that fred reports ends the connection.
                    true => Change::Up,
                    false => Change::Down,
                },
            };
            match news {
                Change::None => self.check(channel).await.map_err(|error| (true, error))?,
                Change::Missed => feed(driver, SUBSCRIBED),
                Change::Up => {
                    self.subscribe(channel)
                        .await
                        .map_err(|error| (true, error))?;
                    feed(driver, SUBSCRIBED);
                    hears = true;
                }
                Change::Down => {
                    if std::mem::take(&mut hears) {
                        feed(driver, UNSUBSCRIBED);
                    }
                }
            }
            let pause = if hears { CHECK } else { CHECK_IF_DOWN };
            check.set(Clock::Machine.sleep(pause));
        }
        Ok(())
    }

    async fn subscribe(&self, channel: &str) -> Result<(), FredError> {
        self.client.subscribe(channel).await?;
        // `subscribe` returns before the server has it, and even if it refuses; what is answered
        // after it proves it.
        self.hears(channel).await
    }

    /// Asks nothing that a user who may subscribe may not ask. Whatever is answered proves the
    /// link.
    async fn check(&self, channel: &str) -> Result<(), FredError> {
        match self.hears(channel).await {
            Err(error) if is_answer(&error) => Ok(()),
            checked => checked,
        }
    }

    async fn hears(&self, channel: &str) -> Result<(), FredError> {
        let (_, heard): (String, u64) = self.client.pubsub_numsub(channel).await?;
        if heard > 0 {
            return Ok(());
        }
        let message = "the server did not accept the subscription";
        Err(FredError::new(ErrorKind::Auth, message))
    }
}

fn push(driver: &Weak<Driver>, message: &Message) {
    let Some(text) = message.value.as_bytes() else {
        return;
    };
    match protocol::decode_push(text) {
        Ok(push) => feed(
            driver,
            Input::Push {
                server: Some(ServerId::ONLY),
                push,
            },
        ),
        Err(error) => tracing::warn!(%error, "a push was not understood"),
    }
}

fn feed(driver: &Weak<Driver>, input: Input) {
    if let Some(driver) = driver.upgrade() {
        Arc::clone(&driver).feed(input);
    }
}
