//! What this user may do, one by one: each command is tried in a way that changes nothing.

use std::time::{Duration, Instant};

use fred::interfaces::{ClientLike, EventInterface};
use fred::prelude::PubsubInterface;
use leasehold::protocol::{ClientId, LockKey, channel};
use tokio::time::timeout;

use super::probe::{Probe, client};
use super::{Found, Level, probe_name};
use crate::exit::Failure;

const TO_HEAR: Duration = Duration::from_secs(2);

/// Commands that belong together, and what fails without one of them.
struct Rights {
    check: &'static str,
    level: Level,
    so: &'static str,
    /// As one would type them. KEY is of a lock that nobody has, CHANNEL one that nobody hears.
    commands: &'static [&'static str],
}

const RIGHTS: [Rights; 4] = [
    Rights {
        check: "rights",
        level: Level::Bad,
        so: "no lock can be taken, given back or waited for",
        // HSET comes last but one, and what it sets is deleted by the last.
        commands: &[
            "TIME",
            "EXISTS KEY",
            "HGET KEY f",
            "HGETALL KEY",
            "HDEL KEY f",
            "PEXPIRE KEY 1000",
            "PEXPIREAT KEY 1",
            "PERSIST KEY",
            "ZADD KEY XX 1 m",
            "ZCOUNT KEY 0 1",
            "ZMSCORE KEY m",
            "ZRANGE KEY 0 1",
            "ZRANGEBYSCORE KEY 0 1",
            "ZREM KEY m",
            "ZSCORE KEY m",
            "EVAL return(1) 0",
            "EVALSHA 0000000000000000000000000000000000000000 0",
            "HSET KEY f 1",
            "HDEL KEY f",
        ],
    },
    Rights {
        check: "rights",
        level: Level::Warning,
        so: "who waits is not told at once that it has the lock, nor a holder that it was taken away",
        commands: &["PUBLISH CHANNEL x", "PUBSUB NUMSUB CHANNEL"],
    },
    Rights {
        check: "rights",
        level: Level::Note,
        so: "locks cannot be listed",
        commands: &["SCAN 0 COUNT 1"],
    },
    Rights {
        check: "rights",
        level: Level::Note,
        so: "a holder learns only at its next renewal that its lock's key was deleted or overwritten",
        commands: &["CLIENT ID", "CLIENT TRACKING OFF", "CLIENT CACHING YES"],
    },
];

pub(super) async fn look(probe: &Probe, namespace: &str) -> Result<Vec<Found>, Failure> {
    let key = LockKey::new(namespace, &probe_name())?.lock().to_string();
    let channel = channel(namespace, ClientId(0));
    let (mut found, mut permitted) = (Vec::new(), 0);
    for rights in &RIGHTS {
        let mut missing: Vec<String> = Vec::new();
        for command in rights.commands {
            let words: Vec<_> = command
                .split(' ')
                .map(|word| match word {
                    "KEY" => key.as_str(),
                    "CHANNEL" => channel.as_str(),
                    word => word,
                })
                .collect();
            // What could not be undone is not done.
            if words[0] == "HSET" && missing.iter().any(|name| name == "+hdel") {
                continue;
            }
            match probe.ask(&words).await {
                Err(refusal) if refusal.is_for_want_of_rights() => {
                    let right = right(&words);
                    if !missing.contains(&right) {
                        missing.push(right);
                    }
                }
                _ => permitted += 1,
            }
        }
        if !missing.is_empty() {
            let missing = missing.join(" ");
            found.push(
                Found::new(
                    rights.check,
                    rights.level,
                    format!("this user may not: {missing}"),
                )
                .so(rights.so)
                .todo(format!(
                    "ACL SETUSER … {missing}, for ~{{{namespace}:* and &leasehold:{namespace}:*"
                )),
            );
        }
    }
    if found.is_empty() {
        found.push(Found::good(
            "rights",
            format!("all of the {permitted} that were tried"),
        ));
    }
    Ok(found)
}

/// As it is written in an ACL.
fn right(words: &[&str]) -> String {
    let subcommand = matches!(words[0], "PUBSUB" | "CLIENT").then(|| format!("|{}", words[1]));
    format!("+{}{}", words[0], subcommand.unwrap_or_default()).to_lowercase()
}

/// A message to oneself.
pub(super) async fn pushes(probe: &Probe, url: &str, namespace: &str) -> Option<Found> {
    let channel = channel(namespace, ClientId(u64::from(std::process::id())));
    let start = Instant::now();
    let heard = timeout(TO_HEAR, hears(probe, url, &channel)).await;
    let problem = match heard {
        Ok(Ok(())) => {
            let took = start.elapsed().as_millis();
            return Some(Found::good(
                "pushes",
                format!("a message to itself arrived, within {took} ms"),
            ));
        }
        Ok(Err(why)) => why,
        Err(_) => "no message arrived".to_owned(),
    };
    // What is missing was said, if it is PUBLISH.
    let todo = if problem.starts_with("NOPERM") {
        format!("ACL SETUSER … +subscribe +publish &leasehold:{namespace}:*")
    } else {
        "see what is between this machine and the server: some proxies pass no messages on"
            .to_owned()
    };
    Some(
        Found::new("pushes", Level::Warning, format!("a message to itself did not arrive: {problem}"))
            .so("who waits asks again each second, or learns within 5 s that it has the lock; a holder learns \
                 of a forced release at its next renewal")
            .todo(todo),
    )
}

async fn hears(probe: &Probe, url: &str, channel: &str) -> Result<(), String> {
    let listener = client(url).ok_or("no connection")?;
    let said = |error: fred::error::Error| error.details().to_owned();
    listener.init().await.map_err(said)?;
    let mut messages = listener.message_rx();
    listener.subscribe(channel).await.map_err(said)?;
    probe
        .ask(&["PUBLISH", channel, "leasehold-doctor"])
        .await
        .map_err(|refusal| refusal.0)?;
    let heard = messages.recv().await.map_err(|error| error.to_string());
    let _ = listener.quit().await;
    heard.map(drop)
}
