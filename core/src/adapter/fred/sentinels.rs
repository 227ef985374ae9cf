//! Asks sentinels about the primary.

use std::time::Duration;

use ::fred::clients::Client;
use ::fred::error::{Error as FredError, ErrorKind as FredErrorKind};
use ::fred::interfaces::ClientLike;
use ::fred::types::config::{Config, Server, ServerConfig};
use leasehold_engine::protocol;
use leasehold_engine::{Error, ErrorKind};
use tokio::time::timeout;

use super::errors::Secrets;
use super::own_task::OwnTask;
use super::{client_of, custom};

/// The timeout of each sentinel.
const LIMIT: Duration = Duration::from_millis(500);

/// Returns true if the client found its server by sentinels.
pub(super) fn found(client: &Client) -> bool {
    client.client_config().server.is_sentinel()
}

/// Returns the primary's host and port, or `None` if the client has no sentinels or none of them answers.
pub(super) async fn primary(client: &Client) -> Option<(String, u16)> {
    let (sentinels, service) = all(&client.client_config())?;
    for (_, config) in sentinels {
        if let Ok(Some(primary)) = ask(config, &service).await {
            return Some(primary);
        }
    }
    None
}

/// Returns why no primary can be reached, which fred hides: the errors of the sentinels, or of the primary
/// that they name. Returns `None` if these can be reached, or there are no sentinels.
pub(super) async fn trouble(client: &Client, secrets: &Secrets) -> Option<Error> {
    let config = client.client_config();
    let (sentinels, service) = all(&config)?;
    let asked = sentinels.into_iter().map(async |(server, config)| {
        let said = ask(config, &service).await;
        (server, said)
    });
    let asked = futures::future::join_all(asked).await;
    let named = asked.iter().find_map(|(_, said)| said.clone().ok()?);
    if let Some((host, port)) = named {
        let server = Server::new(host, port);
        let to_primary = Config {
            server: ServerConfig::Centralized {
                server: server.clone(),
            },
            ..config.clone()
        };
        let error = in_time(async { connected(to_primary).await.map(drop) })
            .await
            .err()?;
        let reason = secrets.reason(&error);
        let message =
            format!("the primary that the sentinels name, {server}, does not serve ({reason})");
        return Some(unreachable(ErrorKind::Unavailable, &message));
    }
    let errors: Option<Vec<_>> = asked
        .iter()
        .map(|(server, said)| Some((server, said.as_ref().err()?)))
        .collect();
    let errors = errors?;
    let is_refused = |error: &FredError| protocol::credentials_refused(error.details()).is_some();
    let kind = if errors.iter().all(|(_, error)| is_refused(error)) {
        ErrorKind::Auth
    } else {
        ErrorKind::Unavailable
    };
    let said = errors.into_iter().map(|(server, error)| {
        if is_refused(error) {
            return format!("{server} (it refuses the URL's sentinelUsername or sentinelPassword)");
        }
        format!("{server} ({})", secrets.reason(error))
    });
    let said = said.collect::<Vec<_>>().join(", ");
    let message = format!("no sentinel names the primary: {said}");
    Some(unreachable(kind, &message))
}

fn unreachable(kind: ErrorKind, reason: &str) -> Error {
    Error::new(kind, Error::unreachable_for(reason))
}

/// Returns the settings to connect to each sentinel, and the service to ask for.
fn all(config: &Config) -> Option<(Vec<(Server, Config)>, String)> {
    let ServerConfig::Sentinel {
        hosts,
        service_name,
        username,
        password,
    } = config.server.clone()
    else {
        return None;
    };
    let sentinels = hosts.into_iter().map(|server| {
        let config = Config {
            server: ServerConfig::Centralized {
                server: server.clone(),
            },
            username: username.clone(),
            password: password.clone(),
            database: None,
            ..config.clone()
        };
        (server, config)
    });
    Some((sentinels.collect(), service_name))
}

/// Asks a sentinel for the primary. Returns `None` if it does not know the service.
async fn ask(config: Config, service: &str) -> Result<Option<(String, u16)>, FredError> {
    in_time(async {
        let (sentinel, _task) = connected(config).await?;
        let words = vec!["get-master-addr-by-name", service];
        sentinel.custom(custom("SENTINEL"), words).await
    })
    .await
}

async fn connected(config: Config) -> Result<(Client, OwnTask), FredError> {
    let client = client_of(config, LIMIT, true)?;
    let task = OwnTask::connect(&client).await?;
    Ok((client, task))
}

async fn in_time<T>(work: impl Future<Output = Result<T, FredError>>) -> Result<T, FredError> {
    let late = |_| {
        FredError::new(
            FredErrorKind::Timeout,
            format!("no answer within {LIMIT:?}"),
        )
    };
    timeout(LIMIT, work).await.map_err(late)?
}
