//! Has the server say which locks change (`CLIENT TRACKING` with `BCAST`), on a connection of its own. It needs
//! no setting of the server, and no key is read for it. But each message costs it about as much as a look: so it is
//! done without where there are many.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fred::interfaces::{ClientLike, EventInterface, TrackingInterface};
use fred::types::RespVersion;
use fred::types::client::Invalidation;
use fred::types::config::ReconnectPolicy;
use leasehold::Name;
use leasehold::protocol::{LockKey, Pattern};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{sleep, timeout};

use super::state::State;
use crate::doctor::probe;

const TO_CONNECT: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(10);
/// Messages in a second with which it is done without for a while.
const MOST: u32 = 300;
const SECOND: Duration = Duration::from_secs(1);
const WHILE_BUSY: Duration = Duration::from_secs(60);

/// Follows for ever, as far as this user may. Else, and meanwhile, it is found out by looking.
pub(super) async fn follow(url: String, namespace: String, state: Arc<State>) {
    let Some((pattern, prefix)) = keys(&namespace) else {
        return;
    };
    loop {
        let end = follow_once(&url, &pattern, &prefix, &state).await;
        state.set_follows(false);
        sleep(if end == Some(Busy) { WHILE_BUSY } else { AGAIN }).await;
    }
}

/// There is so much that it says that looking costs it less.
#[derive(PartialEq)]
struct Busy;

/// The keys of all locks, and what they begin with.
fn keys(namespace: &str) -> Option<(Pattern, String)> {
    let pattern = Pattern::new(namespace, "*").ok()?;
    let key = LockKey::new(namespace, &Name::new("x").ok()?).ok()?;
    let prefix = key.lock().strip_suffix("x}")?.to_owned();
    Some((pattern, prefix))
}

async fn follow_once(url: &str, pattern: &Pattern, prefix: &str, state: &State) -> Option<Busy> {
    let client = probe::client_with(url, |builder| {
        builder.with_config(|config| config.version = RespVersion::RESP3);
        builder.set_policy(ReconnectPolicy::new_constant(0, 1_000));
    })?;
    let (mut changes, mut links) = (client.invalidation_rx(), client.reconnect_rx());
    let followed = async {
        timeout(TO_CONNECT, client.init()).await.ok()?.ok()?;
        let (mut second, mut count) = (Instant::now(), 0);
        loop {
            // The first connection is said as a new one, too, and a prefix may be given only once.
            let on = async {
                client.stop_tracking().await?;
                client
                    .start_tracking(prefix, true, false, false, false)
                    .await
            };
            timeout(TO_CONNECT, on).await.ok()?.ok()?;
            state.set_follows(true);
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
                        hear(change, pattern, state)?;
                    }
                    link = links.recv() => match link {
                        Ok(_) | Err(RecvError::Lagged(_)) => break,
                        Err(RecvError::Closed) => return None,
                    },
                }
            }
        }
    };
    let ended: Option<Busy> = followed.await;
    let _ = client.quit().await;
    ended
}

/// Nothing if there will be no more.
fn hear(change: Result<Invalidation, RecvError>, pattern: &Pattern, state: &State) -> Option<()> {
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

/// Whose lock's key, or whose line's, that is.
fn name_of(pattern: &Pattern, key: &str) -> Option<Name> {
    let end = key.rfind('}')? + 1;
    pattern.name_of(&key[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_lock_or_its_line_is_one_of_the_name() {
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
