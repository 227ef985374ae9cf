//! `leasehold watch`: what happens to locks, as it happens. A store tells nobody of other people's locks, so
//! it looks at them again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use futures::TryStreamExt;
use leasehold::{Error, Inspection, Locker, Name};
use tokio::time::sleep;

use crate::args::WatchArgs;
use crate::exit::Failure;
use crate::look::{Seen, found};
use crate::out::{self, plain, styled};
use crate::say::Voice;
use crate::times::show;

const LEAST_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) fn main(args: &WatchArgs, voice: &Voice) -> Result<u8, Failure> {
    if args.interval < LEAST_INTERVAL {
        let least = show(LEAST_INTERVAL);
        return Err(Failure::usage(format!(
            "--interval is {least} at the least"
        )));
    }
    crate::block_on(watch(args, voice))
}

/// What is looked at.
struct Wanted {
    names: BTreeSet<Name>,
    patterns: Vec<String>,
}

impl Wanted {
    fn new(args: &[String]) -> Result<Self, Failure> {
        let (mut names, mut patterns) = (BTreeSet::new(), Vec::new());
        for arg in args {
            // As in `list`: a backslash or a star makes it a pattern.
            if arg.contains(['*', '\\']) {
                patterns.push(arg.clone());
            } else {
                names.insert(Name::new(arg)?);
            }
        }
        if args.is_empty() {
            patterns.push("*".to_owned());
        }
        Ok(Self { names, patterns })
    }

    /// All of it that is there, and what was there before.
    async fn look(
        &self,
        locker: &Locker,
        before: &Known,
    ) -> Result<Vec<(Name, Inspection)>, Error> {
        let mut names = self.names.clone();
        for pattern in &self.patterns {
            let mut listed = locker.list(pattern);
            while let Some(name) = listed.try_next().await? {
                names.insert(name);
            }
        }
        names.extend(before.keys().cloned());
        found(locker, names).try_collect().await
    }
}

type Known = BTreeMap<Name, Inspection>;

async fn watch(args: &WatchArgs, voice: &Voice) -> Result<u8, Failure> {
    let wanted = Wanted::new(&args.names)?;
    let locker = args.store.connect(None).await?;
    let (mut known, mut away) = (Known::new(), false);
    loop {
        match wanted.look(&locker, &known).await {
            Ok(seen) => {
                if std::mem::take(&mut away) {
                    voice.note("the store is back");
                }
                for (name, now) in seen {
                    let before = known.get(&name);
                    if let Some(change) = change(before, &now) {
                        tell(change, &name, &now, args.json)?;
                    }
                    // A name that nobody wants any more is forgotten, unless it was asked for.
                    let idle = now.holder.is_none() && now.waiting == 0;
                    if idle && !wanted.names.contains(&name) {
                        known.remove(&name);
                    } else {
                        known.insert(name, now);
                    }
                }
            }
            Err(error) if error.is_transient() => {
                if !std::mem::replace(&mut away, true) {
                    voice.note(&format!("the store is away, and is asked again: {error}"));
                }
            }
            Err(error) => return Err(error.into()),
        }
        sleep(args.interval).await;
    }
}

/// What is different, for people who look; renewals are not.
fn change(before: Option<&Inspection>, now: &Inspection) -> Option<&'static str> {
    let Some(before) = before else {
        return Some(if now.holder.is_some() { "held" } else { "free" });
    };
    let owners = |found: &Inspection| -> Vec<String> {
        let labels = found
            .line
            .iter()
            .map(|waiter| waiter.owner.label().to_owned());
        labels.collect()
    };
    match (token(before), token(now)) {
        (before, Some(token)) if before != Some(token) => Some("held"),
        (Some(_), None) => Some("free"),
        // Somebody had it between two looks.
        (None, None) if before.last_token != now.last_token => Some("free"),
        _ if before.waiting != now.waiting || owners(before) != owners(now) => Some("line"),
        _ => None,
    }
}

fn token(found: &Inspection) -> Option<leasehold::FencingToken> {
    found.holder.as_ref().map(|holder| holder.token)
}

fn tell(change: &'static str, name: &Name, found: &Inspection, json: bool) -> Result<u8, Failure> {
    if json {
        let r#type = Some(change);
        return out::json(&Seen {
            r#type,
            name,
            found,
        });
    }
    let color = match change {
        "held" => AnsiColor::Green,
        "free" => AnsiColor::Blue,
        _ => AnsiColor::Yellow,
    };
    let word = styled(
        &format!("{change:<4}"),
        Style::new().fg_color(Some(color.into())),
    );
    let mut line = vec![time_of_day(), word, plain(name.as_str())];
    if let Some(holder) = &found.holder {
        let owner = plain(holder.owner.label());
        line.push(format!(
            " by {owner}, token {}, {} left",
            holder.token,
            show(holder.remaining)
        ));
    } else if let Some(token) = found.last_token {
        line.push(format!(" last token {token}"));
    }
    if found.waiting > 0 || change == "line" {
        line.push(format!(" {} waiting", found.waiting));
    }
    out::text(&(line.join(" ") + "\n"))
}

/// Of UTC.
fn time_of_day() -> String {
    let now = SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_secs();
    let (hours, minutes) = (now / 3_600 % 24, now / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}Z", now % 60)
}
