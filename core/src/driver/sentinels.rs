//! What sentinels say of the server that a client of theirs is connected to.

use std::time::Duration;

use ::fred::clients::Client;
use ::fred::interfaces::ClientLike;
use ::fred::types::config::{Config, ServerConfig};
use ::fred::types::{ClusterHash, CustomCommand};

use super::fred::FredStore;
use super::link::OwnTask;

/// How long each of them has to answer.
const LIMIT: Duration = Duration::from_millis(500);

/// Whether they named the server to the client.
pub(super) fn found(client: &Client) -> bool {
    client.client_config().server.is_sentinel()
}

/// The host and port of the primary; nothing if the client did not find it by sentinels, or none of them
/// answers.
pub(super) async fn primary(client: &Client) -> Option<(String, u16)> {
    let config = client.client_config();
    let ServerConfig::Sentinel {
        hosts,
        service_name,
        username,
        password,
    } = config.server.clone()
    else {
        return None;
    };
    for server in hosts {
        let config = Config {
            server: ServerConfig::Centralized { server },
            username: username.clone(),
            password: password.clone(),
            database: None,
            ..config.clone()
        };
        let asked = tokio::time::timeout(LIMIT, ask(config, &service_name)).await;
        if let Ok(Some(primary)) = asked {
            return Some(primary);
        }
    }
    None
}

async fn ask(config: Config, service: &str) -> Option<(String, u16)> {
    let sentinel = FredStore::client_of(config, LIMIT, true).ok()?;
    let _task = OwnTask::connect(&sentinel).await.ok()?;
    let command = CustomCommand::new_static("SENTINEL", ClusterHash::FirstKey, false);
    let words = vec!["get-master-addr-by-name", service];
    sentinel.custom(command, words).await.ok()
}
