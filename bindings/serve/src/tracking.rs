//! Has the server report which locks change (`CLIENT TRACKING` with `BCAST`), on a connection of its own. This needs no
//! setting of the server, and reads no key. But each report costs the server about as much as an inspection, so a busy
//! server is not tracked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fred::interfaces::{ClientLike, EventInterface, TrackingInterface};
use fred::types::client::Invalidation;
use fred::types::config::ReconnectPolicy;
use fred::types::{Builder, RespVersion};
use leasehold::{Locker, Name};
use leasehold_engine::protocol::{LockKey, Pattern};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{sleep, timeout};

use crate::state::State;

const TO_CONNECT: Duration = Duration::from_secs(5);
const TO_QUIT: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(10);
/// With more reports in a second the server counts as busy.
const MOST: u32 = 300;
const SECOND: Duration = Duration::from_secs(1);
const WHILE_BUSY: Duration = Duration::from_secs(60);

/// Tracks changes forever, if this user may. Without tracking, polling finds the changes.
pub(crate) async fn track(url: String, namespace: String, state: Arc<State>) {
    let Some((pattern, prefix)) = keys(&namespace) else {
        return;
    };
    loop {
        let end = track_once(&url, &pattern, &prefix, &state).await;
        state.table().tracks = false;
        sleep(if end == Some(Busy) { WHILE_BUSY } else { AGAIN }).await;
    }
}

/// The server has so many changes to report that polling costs it less.
#[derive(PartialEq)]
struct Busy;

/// Returns the pattern of the keys of all locks, and their common prefix.
fn keys(namespace: &str) -> Option<(Pattern, String)> {
    let pattern = Pattern::new(namespace, "*").ok()?;
    let key = LockKey::new(namespace, &Name::new("x").ok()?).ok()?;
    let prefix = key.lock().strip_suffix("x}")?.to_owned();
    Some((pattern, prefix))
}

async fn track_once(url: &str, pattern: &Pattern, prefix: &str, state: &State) -> Option<Busy> {
    // It reads the URL as the locker does.
    let client = Locker::builder().fred_client(url).ok()?;
    let mut builder = Builder::from_config(client.client_config());
    builder.set_connection_config(client.connection_config().clone());
    builder.with_config(|config| config.version = RespVersion::RESP3);
    builder.set_policy(ReconnectPolicy::new_constant(0, 1_000));
    let client = builder.build().ok()?;
    let (mut changes, mut links) = (client.invalidation_rx(), client.reconnect_rx());
    let task = client.connect();
    let tracked = async {
        timeout(TO_CONNECT, client.wait_for_connect())
            .await
            .ok()?
            .ok()?;
        let (mut second, mut count) = (Instant::now(), 0);
        loop {
            // fred reports the first connection as a new one, too, and a prefix may be given only once.
            let on = async {
                client.stop_tracking().await?;
                client
                    .start_tracking(prefix, true, false, false, false)
                    .await
            };
            timeout(TO_CONNECT, on).await.ok()?.ok()?;
            state.table().tracks = true;
            state.gap();
            loop {
                tokio::select! {
                    change = changes.recv() => {
                        if second.elapsed() > SECOND {
                            (second, count) = (Instant::now(), 0);
                        }
                        count += 1;
                        if count > MOST {
                            return Some(Busy);
                        }
                        take_in(change, pattern, state)?;
                    }
                    link = links.recv() => match link {
                        Ok(_) | Err(RecvError::Lagged(_)) => break,
                        Err(RecvError::Closed) => return None,
                    },
                }
            }
        }
    };
    let ended: Option<Busy> = tracked.await;
    // fred's `quit` may hang while it reconnects, and its task may outlive it.
    let _ = timeout(TO_QUIT, client.quit()).await;
    task.abort();
    ended
}

/// Takes in a report. Returns `None` if there will be no more.
fn take_in(
    change: Result<Invalidation, RecvError>,
    pattern: &Pattern,
    state: &State,
) -> Option<()> {
    match change {
        // Everything was deleted.
        Ok(change) if change.keys.is_empty() => state.gap(),
        Ok(change) => {
            let keys = change.keys.iter().filter_map(|key| key.as_str());
            state.changed(keys.filter_map(|key| name_of(pattern, key)));
        }
        Err(RecvError::Lagged(_)) => state.gap(),
        Err(RecvError::Closed) => return None,
    }
    Some(())
}

/// Returns the name of the lock whose key, or whose line's key, this is.
fn name_of(pattern: &Pattern, key: &str) -> Option<Name> {
    let end = key.rfind('}')? + 1;
    pattern.name_of(&key[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_lock_or_of_its_line_is_a_change_of_the_name() {
        let (pattern, prefix) = keys("a:b}").expect("it is valid");
        let key = LockKey::new("a:b}", &Name::new("x}y").expect("valid")).expect("valid");
        assert!(key.lock().starts_with(&prefix), "{prefix}");
        for key in [key.lock(), &key.line()] {
            let name = name_of(&pattern, key).expect("a lock's");
            assert_eq!(name.as_str(), "x}y");
        }
        assert_eq!(name_of(&pattern, "other"), None);
    }
}
