//! A plain connection, for commands that the library does not send.

use std::collections::HashMap;
use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::{ClusterHash, CustomCommand, Value};
use leasehold::Locker;
use tokio::time::timeout;

use crate::exit::{Failure, STORE_AWAY};

const TO_REPLY: Duration = Duration::from_secs(3);
const TO_QUIT: Duration = Duration::from_millis(500);

/// A connection to the store.
pub(crate) struct Probe {
    pub(crate) client: Client,
}

/// The error that the server replied with, or why there is no reply.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) String);

/// The kind of right that a user lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    Command,
    Key,
    Channel,
}

impl Refusal {
    /// Returns the kind of right that this user lacks, if the server says so. Servers check the command first.
    pub(crate) fn want(&self) -> Option<Want> {
        // The first text is that of Redis before 7.2, the second that of later versions.
        let about = |what| {
            let said = [
                format!("access one of the {what}s"),
                format!("access a {what}"),
            ];
            said.iter().any(|said| self.0.contains(said))
        };
        match () {
            () if !self.0.starts_with("NOPERM") => None,
            () if about("key") => Some(Want::Key),
            () if about("channel") => Some(Want::Channel),
            () => Some(Want::Command),
        }
    }

    fn away() -> Self {
        Self("the server does not reply".to_owned())
    }
}

impl Probe {
    /// Connects. The error does not show the URL, which may have a password in it.
    pub(crate) async fn connect(url: &str) -> Result<Self, Failure> {
        let failed = || {
            Failure::new(
                STORE_AWAY,
                "a second connection to the store cannot be made",
            )
        };
        let client = client(url).ok_or_else(failed)?;
        let connected = timeout(TO_REPLY, client.init()).await;
        connected.map_err(|_| failed())?.map_err(|_| failed())?;
        Ok(Self { client })
    }

    /// Disconnects. A server that is away does not hold it up.
    pub(crate) async fn quit(self) {
        // fred's `quit` may hang while it reconnects.
        let _ = timeout(TO_QUIT, self.client.quit()).await;
    }

    /// Returns the user whose rights the connection has.
    pub(crate) fn user(&self) -> String {
        let user = self.client.client_config().username.clone();
        user.unwrap_or_else(|| "default".to_owned())
    }

    pub(crate) async fn ask(&self, command: &[&str]) -> Result<Value, Refusal> {
        let (name, args) = command.split_first().ok_or_else(Refusal::away)?;
        let custom = CustomCommand::new((*name).to_owned(), ClusterHash::FirstKey, false);
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        match timeout(TO_REPLY, self.client.custom(custom, args)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Refusal(error.details().to_owned())),
            Err(_) => Err(Refusal::away()),
        }
    }

    /// Returns the fields of `INFO`.
    pub(crate) async fn info(&self) -> Result<HashMap<String, String>, Refusal> {
        let text = self.ask(&["INFO"]).await?;
        let text = text.into_string().unwrap_or_default();
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect())
    }

    /// Returns the server's time since 1970.
    pub(crate) async fn time(&self) -> Result<Duration, Refusal> {
        let parts: Vec<u64> = match self.ask(&["TIME"]).await? {
            Value::Array(parts) => parts.iter().filter_map(Value::as_u64).collect(),
            _ => Vec::new(),
        };
        match parts[..] {
            [seconds, micros] => Ok(Duration::from_secs(seconds) + Duration::from_micros(micros)),
            _ => Err(Refusal("TIME has an odd reply".to_owned())),
        }
    }
}

/// Makes a client of the store that is not connected yet. It reads the URL as the locker does.
pub(crate) fn client(url: &str) -> Option<Client> {
    Locker::builder().fred_client(url).ok()
}

#[cfg(test)]
mod tests {
    use leasehold_tests::RedisServer;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Catches a command that waits forever for a server that went away after it was connected.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn quitting_ends_although_the_server_went_away() {
        // It hung in about half of the attempts.
        for _ in 0..8 {
            let mut server = RedisServer::start().await;
            let probe = Probe::connect(&server.url()).await;
            let probe = probe.unwrap_or_else(|_| panic!("the server answers"));
            server.kill();
            let (quit, ()) = tokio::join!(timeout(LIMIT, probe.quit()), server.restart());
            assert!(quit.is_ok(), "it waits for the server");
        }
    }
}
