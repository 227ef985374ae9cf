//! Checks each right of this user, by commands that change nothing.

use std::time::{Duration, Instant};

use fred::interfaces::{ClientLike, EventInterface};
use fred::prelude::PubsubInterface;
use leasehold_engine::protocol::{ClientId, LockKey, Rights, channel};
use tokio::time::timeout;

use super::{Found, Level, probe_name};
use crate::exit::Failure;
use crate::probe::{Probe, Want, client};

const TO_HEAR: Duration = Duration::from_secs(2);

/// Rights that belong together, and what fails without them.
struct Group {
    level: Level,
    rights: &'static str,
    so: &'static str,
}

const GROUPS: [Group; 5] = [
    Group {
        level: Level::Bad,
        rights: Rights::LOCKS,
        so: "locks cannot be taken, released or waited for, always or in some cases",
    },
    Group {
        level: Level::Warning,
        rights: Rights::PUSHES,
        so: "waiters and holders are not notified: a handoff takes up to 5 s, and a holder learns of a forced \
             release only at its next renewal",
    },
    Group {
        level: Level::Note,
        rights: "+info",
        so: "version, eviction, persistence and replicas cannot be checked",
    },
    Group {
        level: Level::Note,
        rights: Rights::LIST,
        so: "locks cannot be listed. This right shows the names of all keys of the database: leave it out if \
             tenants distrust one another",
    },
    Group {
        level: Level::Note,
        rights: Rights::TRACKING,
        so: "a holder learns only at its next renewal that its lock's key was deleted or overwritten. \
             +client|tracking shows the names of all keys of the server: leave it out if tenants distrust one \
             another, and turn tracking off in programs",
    },
];

/// Returns a command that needs this right and changes nothing. KEY stands for the key of a free lock, CHANNEL for a
/// channel without subscribers. SUBSCRIBE is tried on a connection of its own.
fn trial(right: &str) -> &'static str {
    match right {
        "+eval" => "EVAL return(1) 0",
        "+evalsha" => "EVALSHA 0000000000000000000000000000000000000000 0",
        "+time" => "TIME",
        "+exists" => "EXISTS KEY",
        "+hget" => "HGET KEY f",
        "+hgetall" => "HGETALL KEY",
        // A field without a value: the server refuses it even with the right.
        "+hset" => "HSET KEY f 1 g",
        "+hdel" => "HDEL KEY f",
        "+pexpire" => "PEXPIRE KEY 1000",
        "+pexpireat" => "PEXPIREAT KEY 1",
        "+persist" => "PERSIST KEY",
        "+zadd" => "ZADD KEY XX 1 m",
        "+zcard" => "ZCARD KEY",
        "+zcount" => "ZCOUNT KEY 0 1",
        "+zmscore" => "ZMSCORE KEY m",
        "+zrange" => "ZRANGE KEY 0 1",
        "+zrangebyscore" => "ZRANGEBYSCORE KEY 0 1",
        "+zrem" => "ZREM KEY m",
        "+zscore" => "ZSCORE KEY m",
        "+publish" => "PUBLISH CHANNEL x",
        "+pubsub|numsub" => "PUBSUB NUMSUB CHANNEL",
        "+info" => "INFO server",
        "+scan" => "SCAN 0 COUNT 1",
        "+client|id" => "CLIENT ID",
        "+client|tracking" => "CLIENT TRACKING OFF",
        "+client|caching" => "CLIENT CACHING YES",
        _ => "",
    }
}

/// Tries all rights, and whether a message that the user sends to itself arrives.
pub(super) async fn look(probe: &Probe, url: &str, namespace: &str) -> Result<Vec<Found>, Failure> {
    let mut lacks = Lacks::new(namespace)?;
    let heard = hears(probe, url, &lacks.channel).await;
    if heard.is_err() {
        let subscribed = subscribes(url, &lacks.channel).await;
        lacks.note("+subscribe", subscribed);
    } else {
        lacks.note("+subscribe", Ok(()));
    }
    for right in GROUPS.iter().flat_map(|group| group.rights.split(' ')) {
        lacks.try_out(probe, right).await;
    }
    let pushes = pushes(heard, lacks.any(Rights::PUSHES));
    Ok(lacks
        .found(&probe.user())
        .into_iter()
        .chain([pushes])
        .collect())
}

/// The rights that a user lacks.
struct Lacks {
    patterns: Rights,
    key: String,
    channel: String,
    commands: Vec<&'static str>,
    permitted: usize,
    /// True if keys and channels are permitted; `None` while every command on them is refused.
    keys: Option<bool>,
    channels: Option<bool>,
}

impl Lacks {
    fn new(namespace: &str) -> Result<Self, Failure> {
        Ok(Self {
            patterns: Rights::new(namespace),
            key: LockKey::new(namespace, &probe_name())?.lock().to_owned(),
            channel: channel(namespace, ClientId(u64::from(std::process::id()))),
            commands: Vec::new(),
            permitted: 0,
            keys: None,
            channels: None,
        })
    }

    async fn try_out(&mut self, probe: &Probe, right: &'static str) {
        let trial = trial(right);
        if trial.is_empty() {
            return;
        }
        let words: Vec<_> = trial
            .split(' ')
            .map(|word| match word {
                "KEY" => &self.key,
                "CHANNEL" => &self.channel,
                word => word,
            })
            .collect();
        let answer = match probe.ask(&words).await {
            Err(refusal) => refusal.want().map_or(Ok(()), Err),
            Ok(_) => Ok(()),
        };
        self.note(right, answer);
    }

    fn note(&mut self, right: &'static str, answer: Result<(), Want>) {
        let on_key = trial(right).contains("KEY");
        // PUBSUB NUMSUB needs no permission for the channel.
        let on_channel = matches!(right, "+publish" | "+subscribe");
        match answer {
            Err(Want::Command) => return self.commands.push(right),
            Err(Want::Key) => self.keys = Some(false),
            Err(Want::Channel) => self.channels = Some(false),
            Ok(()) if on_key => self.keys = Some(true),
            Ok(()) if on_channel => self.channels = Some(true),
            Ok(()) => {}
        }
        self.permitted += 1;
    }

    /// Returns the missing rights of a group, with the pattern that they need.
    fn of(&self, rights: &'static str) -> Vec<String> {
        let pattern = match rights {
            Rights::LOCKS if self.keys != Some(true) => Some(self.patterns.keys()),
            Rights::PUSHES if self.channels != Some(true) => Some(self.patterns.channels()),
            _ => None,
        };
        let own = rights
            .split(' ')
            .filter(|right| self.commands.contains(right));
        pattern.into_iter().chain(own.map(str::to_owned)).collect()
    }

    fn any(&self, rights: &'static str) -> bool {
        !self.of(rights).is_empty()
    }

    /// Returns a finding for each group, the worst first. One line in it grants all missing rights.
    fn found(&self, user: &str) -> Vec<Found> {
        let lacking = GROUPS.iter().filter(|group| self.any(group.rights));
        let mut found: Vec<_> = lacking
            .map(|group| {
                let missing = self.of(group.rights).join(" ");
                let what = format!("this user may not: {missing}");
                Found::new("rights", group.level, what).so(group.so)
            })
            .collect();
        let Some(first) = found.first_mut() else {
            let what = format!(
                "this user has all {} rights that were tried",
                self.permitted
            );
            return vec![Found::good("rights", what)];
        };
        let all = GROUPS.iter().flat_map(|group| self.of(group.rights));
        let line: Vec<_> = ["ACL".to_owned(), "SETUSER".to_owned(), user.to_owned()]
            .into_iter()
            .chain(all)
            .map(|argument| word(&argument))
            .collect();
        first.todo = Some(line.join(" "));
        found
    }
}

/// Quotes an argument for redis-cli.
fn word(argument: &str) -> String {
    let plain = |c: char| !c.is_control() && !matches!(c, '"' | '\'' | ' ');
    if argument.chars().all(plain) {
        return argument.to_owned();
    }
    let quoted = argument.bytes().map(|byte| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    });
    format!("\"{}\"", quoted.collect::<String>())
}

/// Reports what became of a message that the user sent to itself; `refused` if a missing right was reported before.
fn pushes(heard: Result<Duration, String>, refused: bool) -> Found {
    let problem = match heard {
        Ok(took) => {
            let took = took.as_millis();
            let what = format!("a message from this user to itself arrived within {took} ms");
            return Found::good("pushes", what);
        }
        Err(why) => why,
    };
    let problem = if refused { "see its rights" } else { &problem };
    let found = Found::new("pushes", Level::Warning, format!("a message from this user to itself did not arrive: {problem}"))
        .so("waiters ask again each second, or learn within 5 s that they have the lock; a holder learns of a \
             forced release at its next renewal");
    if refused {
        return found;
    }
    found.todo("check for a proxy between this machine and the server: some do not forward pub/sub messages")
}

/// Returns how long a message that the user sent to itself took, or why none arrived.
async fn hears(probe: &Probe, url: &str, channel: &str) -> Result<Duration, String> {
    let start = Instant::now();
    match timeout(TO_HEAR, hear(probe, url, channel)).await {
        Ok(heard) => heard.map(|()| start.elapsed()),
        Err(_) => Err("no message arrived".to_owned()),
    }
}

async fn hear(probe: &Probe, url: &str, channel: &str) -> Result<(), String> {
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

/// Checks that this user may subscribe. fred's own call does not return the server's answer.
async fn subscribes(url: &str, channel: &str) -> Result<(), Want> {
    let Ok(probe) = Probe::connect(url).await else {
        return Ok(());
    };
    match probe.ask(&["SUBSCRIBE", channel]).await {
        Err(refusal) => refusal.want().map_or(Ok(()), Err),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a documented right that the doctor does not check.
    #[test]
    fn each_right_is_tried() {
        for right in GROUPS.iter().flat_map(|group| group.rights.split(' ')) {
            let command = trial(right).to_lowercase().replace(' ', "|");
            let begins = command.starts_with(right.trim_start_matches('+'));
            assert!(begins || right == "+subscribe", "{right}: {command}");
        }
    }

    #[test]
    fn an_argument_is_quoted_where_redis_cli_would_take_it_for_something_else() {
        for (argument, expected) in [
            (r"~{st\*r:*", r"~{st\*r:*"),
            ("~{é%3A:*", "~{é%3A:*"),
            (r"~{it's\*:*", r#""~{it's\\*:*""#),
            ("a\"b", r#""a\"b""#),
            ("a\n", r#""a\x0a""#),
        ] {
            assert_eq!(word(argument), expected);
        }
    }
}
