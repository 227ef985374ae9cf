//! Receives pushes for a locker on a connection of redis-rs.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, PushInfo,
    PushKind, RedisResult, Value, cmd,
};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver};

use super::{RedisPushes, RedisRs};
use crate::adapter::room::{Room, Stop};
use crate::adapter::{Adapter, Hearing};

/// The interval at which the connection is checked, and the timeout of each request.
const CHECK: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(2);
/// The pause before the next attempt to subscribe.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const SLOWEST_RETRY: Duration = Duration::from_secs(10);

/// Listens for as long as it is polled.
pub(super) async fn listen<C>(adapter: &RedisRs<C>, channel: String, hearing: Hearing)
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    let commands = &adapter.connection;
    if adapter.is_clustered() {
        // Tracking would have to be turned on for each connection to each server.
        hearing.hears_no_changes("a cluster client tracks no keys: it has several connections");
    }
    let (mut pause, mut room) = (FIRST_RETRY, Room::FIRST);
    loop {
        let heard = match &adapter.pushes {
            RedisPushes::Unheard => return,
            RedisPushes::Client(client) => {
                hear_apart(client, (commands.clone(), room), &channel, &hearing).await
            }
            RedisPushes::Sender(sender) => {
                let listener = Listener {
                    connection: commands.clone(),
                    pushes: sender.subscribe(),
                    room: Room::LARGEST,
                    is_apart: false,
                };
                listener.hear(&channel, &hearing).await
            }
        };
        hearing.unsubscribed();
        match heard {
            Ok(Stop::Over) => pause = FIRST_RETRY,
            Ok(Stop::Missed) => {
                room = room.larger();
                continue;
            }
            // The client's message may contain what the server echoed, so show only the kind.
            Err(error) => {
                if error.code() == Some("NOPERM") {
                    hearing.refused();
                }
                let kind = error.kind();
                tracing::warn!(
                    target: "leasehold",
                    ?kind,
                    "pushes cannot be received; waiters poll every second instead"
                );
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(SLOWEST_RETRY);
    }
}

/// A connection that speaks RESP3, and its pushes.
struct Listener<C> {
    connection: C,
    pushes: Receiver<PushInfo>,
    /// The room for them; the largest if it is the program's own.
    room: Room,
    /// True if it is not the command connection.
    is_apart: bool,
}

async fn hear_apart<C: ConnectionLike>(
    client: &Client,
    (commands, room): (C, Room),
    channel: &str,
    hearing: &Hearing,
) -> RedisResult<Stop> {
    let listener = match Listener::open(client, room, None).await {
        Ok(listener) => listener,
        // Any server of a cluster will do: a message published at one arrives at all.
        Err(error) => {
            let mut opened = Err(error);
            for node in nodes(commands).await {
                opened = Listener::open(client, room, Some(node)).await;
                if opened.is_ok() {
                    break;
                }
            }
            opened?
        }
    };
    listener.hear(channel, hearing).await
}

impl Listener<MultiplexedConnection> {
    /// Connects as the client would, or to another server.
    async fn open(client: &Client, room: Room, to: Option<(String, u16)>) -> RedisResult<Self> {
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP3);
        let mut info = info.set_redis_settings(settings);
        if let Some(to) = to {
            let addr = beside(info.addr(), to);
            info = info.set_addr(addr);
        }
        let (sender, pushes) = broadcast::channel(room.pushes());
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT))
            .set_push_sender(sender);
        let client = Client::open(info.into_connection_info()?)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let connection = connection.await?;
        Ok(Self {
            connection,
            pushes,
            room,
            is_apart: true,
        })
    }
}

impl<C: ConnectionLike> Listener<C> {
    /// Returns once the connection is gone or needs more room, or an error if it cannot receive pushes.
    async fn hear(mut self, channel: &str, hearing: &Hearing) -> RedisResult<Stop> {
        // With RESP2 the connection could not send other commands after it has subscribed.
        if !matches!(self.ask(&["HELLO"]).await?, Value::Map(_)) {
            let error = (
                redis::ErrorKind::RESP3NotSupported,
                "the connection of this push sender does not speak RESP3",
            );
            return Err(error.into());
        }
        self.ask(&["SUBSCRIBE", channel]).await?;
        hearing.subscribed();
        let id = if self.is_apart {
            self.ask(&["CLIENT", "ID"]).await.map(Some)
        } else {
            Ok(None)
        };
        let hears_changes = || match &id {
            Ok(None) => hearing.hears_changes(None),
            Ok(Some(Value::Int(id))) => hearing.hears_changes(Some(*id)),
            _ => hearing.hears_no_changes("the user may not run CLIENT ID (+client|id)"),
        };
        hears_changes();
        let mut check = Box::pin(tokio::time::sleep(CHECK));
        loop {
            let push = tokio::select! {
                biased;
                push = self.pushes.recv() => push,
                () = check.as_mut() => {
                    // Unlike PING, HELLO needs no right.
                    if self.ask(&["HELLO"]).await.is_err() {
                        return Ok(Stop::Over);
                    }
                    hears_changes();
                    check.set(tokio::time::sleep(CHECK));
                    continue;
                }
            };
            match push {
                Ok(push) if push.kind == PushKind::Disconnection => return Ok(Stop::Over),
                Ok(push) => take_in(&push, channel, hearing),
                Err(RecvError::Lagged(_)) if !self.room.is_largest() => return Ok(Stop::Missed),
                Err(RecvError::Lagged(_)) => hearing.missed(),
                Err(RecvError::Closed) => return Ok(Stop::Over),
            }
        }
    }

    async fn ask(&mut self, words: &[&str]) -> RedisResult<Value> {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        let reply = self.connection.req_packed_command(&command);
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        let reply = tokio::time::timeout(TIMEOUT, reply).await.map_err(late)?;
        reply.and_then(Value::extract_error)
    }
}

fn take_in(push: &PushInfo, channel: &str, hearing: &Hearing) {
    match (&push.kind, &*push.data) {
        (PushKind::Message, [Value::BulkString(on), Value::BulkString(message)])
            if on == channel.as_bytes() =>
        {
            hearing.message(message);
        }
        (PushKind::Invalidate, [Value::Array(keys)]) => {
            for key in keys {
                if let Value::BulkString(key) = key {
                    hearing.changed(Some(key));
                }
            }
        }
        // All keys were flushed.
        (PushKind::Invalidate, _) => hearing.changed(None),
        _ => {}
    }
}

/// Returns the address of another server that is reached in the same way.
fn beside(addr: &ConnectionAddr, (host, port): (String, u16)) -> ConnectionAddr {
    match addr.clone() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure,
            tls_params,
        },
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// Asks for the masters of a cluster. Returns none if the server is not of a cluster.
async fn nodes<C: ConnectionLike>(mut commands: C) -> Vec<(String, u16)> {
    let mut command = cmd("CLUSTER");
    command.arg("SLOTS");
    let slots = tokio::time::timeout(TIMEOUT, commands.req_packed_command(&command)).await;
    let Ok(Ok(Value::Array(stretches))) = slots else {
        return Vec::new();
    };
    let mut nodes: Vec<_> = stretches.iter().filter_map(master).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

fn master(stretch: &Value) -> Option<(String, u16)> {
    let Value::Array(stretch) = stretch else {
        return None;
    };
    let [_first, _last, Value::Array(node), ..] = &**stretch else {
        return None;
    };
    let [Value::BulkString(host), Value::Int(port), ..] = &**node else {
        return None;
    };
    let host = String::from_utf8(host.clone()).ok();
    Some((
        host.filter(|host| !host.is_empty())?,
        u16::try_from(*port).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use redis::{Cmd, Pipeline, RedisFuture};

    use super::*;
    use crate::adapter::reports::Reports;

    /// A connection that speaks RESP3 and agrees to everything.
    struct Agreeable;

    impl ConnectionLike for Agreeable {
        fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
            Box::pin(std::future::ready(Ok(Value::Map(Vec::new()))))
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            _: &'a Pipeline,
            _: usize,
            count: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            Box::pin(std::future::ready(Ok(vec![Value::Okay; count])))
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    /// Hears three pushes that arrive before the first is read, with room for two. The last one is the end of
    /// the connection. Returns why it stopped, and what it reported until then.
    async fn hear_too_late(room: Room) -> (Stop, Vec<String>) {
        let (sender, pushes) = broadcast::channel(2);
        let (hearing, reports) = Reports::hearing();
        let text = |text: &str| Value::BulkString(text.into());
        let message = |word| (PushKind::Message, vec![text("channel"), text(word)]);
        let end = (PushKind::Disconnection, Vec::new());
        for (kind, data) in [message("first"), message("second"), end] {
            let push = PushInfo { kind, data };
            sender.send(push).expect("the listener exists");
        }
        let listener = Listener {
            connection: Agreeable,
            pushes,
            room,
            is_apart: false,
        };
        let heard = listener.hear("channel", &hearing).await;
        (heard.expect("the connection is up"), reports.all())
    }

    /// Catches a listener that missed messages and changes and tells nobody, or only the waiters: a fixed lease
    /// has no renewal that would notice.
    #[tokio::test]
    async fn whatever_was_missed_is_checked() {
        let (stop, reports) = hear_too_late(Room::LARGEST).await;
        assert!(matches!(stop, Stop::Over));
        let begin = ["Subscribed", "HearsChanges(None)"];
        let checks = ["Subscribed", "Changed(None)", "Message(second)"];
        assert_eq!(reports, [&begin[..], &checks].concat());
        let (stop, reports) = hear_too_late(Room::FIRST).await;
        assert!(matches!(stop, Stop::Missed));
        assert_eq!(reports, begin);
    }
}
