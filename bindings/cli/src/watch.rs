//! `leasehold watch`: changes of locks as they happen. A store does not report other clients' locks, so this polls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use anstyle::{AnsiColor, Style};
use futures::TryStreamExt;
use leasehold::{Error, FencingToken, Inspection, Locker, Name};
use leasehold_observe::{ChangeKind, Observation, escaped, is_held, summary};
use tokio::time::sleep;

use crate::args::WatchArgs;
use crate::exit::Failure;
use crate::look::{Seen, found};
use crate::out::{self, styled};
use crate::say::Voice;
use crate::times::show;

const LEAST_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) fn main(args: &WatchArgs, voice: &Voice) -> Result<u8, Failure> {
    if args.interval < LEAST_INTERVAL {
        let least = show(LEAST_INTERVAL);
        return Err(Failure::usage(format!(
            "--interval must be at least {least}; got {}",
            show(args.interval)
        )));
    }
    crate::block_on(watch(args, voice))
}

/// The names and patterns to watch.
struct Wanted {
    names: BTreeSet<Name>,
    patterns: Vec<String>,
}

impl Wanted {
    fn new(args: &[String]) -> Result<Self, Failure> {
        let (mut names, mut patterns) = (BTreeSet::new(), Vec::new());
        for arg in args {
            // A backslash or a star makes it a pattern, as in `list`.
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

    /// Inspects all locks that exist, and those that existed before.
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

type Known = BTreeMap<Name, Observation>;

async fn watch(args: &WatchArgs, voice: &Voice) -> Result<u8, Failure> {
    let wanted = Wanted::new(&args.names)?;
    let locker = args.store.connect(None, voice).await?;
    let (mut known, mut away) = (Known::new(), false);
    loop {
        match wanted.look(&locker, &known).await {
            Ok(seen) => {
                if std::mem::take(&mut away) {
                    voice.note("the store is back");
                }
                for (name, found) in seen {
                    let before = known.get(&name);
                    let now = Observation::new(found, Instant::now(), before);
                    if let Some(change) = change(before, &now) {
                        tell(change, &name, &now.inspection, args.json)?;
                    }
                    // Forget a free name without waiters, unless the user named it.
                    let idle = !is_held(&now.inspection) && now.inspection.waiting == 0;
                    if idle && !wanted.names.contains(&name) {
                        known.remove(&name);
                    } else {
                        known.insert(name, now);
                    }
                }
            }
            Err(error) if error.is_transient() => {
                if !std::mem::replace(&mut away, true) {
                    voice.note(&format!("the store cannot be reached; retrying: {error}"));
                }
            }
            Err(error) => return Err(error.into()),
        }
        sleep(args.interval).await;
    }
}

/// Returns the word for a change of a lock, and how the tenure before it ended, if one did.
type Happened = (&'static str, Option<ChangeKind>);

/// Returns the differences for a person. A renewal is not a difference.
fn change(before: Option<&Observation>, now: &Observation) -> Option<Happened> {
    let happened = |what, reason| Some((what, reason));
    let Some(before) = before else {
        return happened(state(now), None);
    };
    let owners = |now: &Observation| -> Vec<String> {
        let line = now.inspection.line.iter();
        line.map(|waiter| waiter.owner.label().to_owned()).collect()
    };
    let changes = now.changes(before, None);
    let mut kinds = changes.iter().map(|change| change.kind);
    let reason = kinds.find(|kind| *kind != ChangeKind::Acquired);
    match (before.token(), now.token()) {
        _ if now.inspection.shared.is_some() && tokens(before) != tokens(now) => {
            happened(state(now), None)
        }
        (before, Some(token)) if before != Some(token) => happened("held", reason),
        (Some(_), None) => happened("free", reason),
        // Somebody held it between two inspections.
        (None, None)
            if now.inspection.shared.is_none()
                && before.inspection.last_token != now.inspection.last_token =>
        {
            happened("free", Some(ChangeKind::Ended))
        }
        _ if before.inspection.waiting != now.inspection.waiting
            || owners(before) != owners(now) =>
        {
            happened("line", None)
        }
        _ => None,
    }
}

fn state(now: &Observation) -> &'static str {
    if is_held(&now.inspection) {
        "held"
    } else {
        "free"
    }
}

/// Returns the tokens of the holders of a shared name.
fn tokens(now: &Observation) -> BTreeSet<FencingToken> {
    let holders = now.inspection.shared.iter();
    let holders = holders.flat_map(|shared| &shared.holders);
    holders.map(|permit| permit.token).collect()
}

/// Returns the reason in words.
fn words(reason: ChangeKind) -> &'static str {
    match reason {
        ChangeKind::Released => "released",
        ChangeKind::Expired => "expired",
        ChangeKind::Superseded => "taken over by its owner",
        ChangeKind::Revoked => "released by force",
        ChangeKind::Ended | ChangeKind::Acquired => "ended",
    }
}

fn tell(
    (what, reason): Happened,
    name: &Name,
    found: &Inspection,
    json: bool,
) -> Result<u8, Failure> {
    let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    if json {
        return out::json(&Seen {
            r#type: Some(what),
            name,
            found,
            time: u64::try_from(time.as_millis()).ok(),
            reason,
        });
    }
    let color = match what {
        "held" => AnsiColor::Green,
        "free" => AnsiColor::Blue,
        _ => AnsiColor::Yellow,
    };
    let word = styled(
        &format!("{what:<4}"),
        Style::new().fg_color(Some(color.into())),
    );
    let mut line = vec![time_of_day(time), word, escaped(name.as_str())];
    if let Some(holder) = &found.holder {
        let owner = escaped(holder.owner.label());
        line.push(format!(
            " by {owner}, token {}, {} left",
            holder.token,
            show(holder.remaining)
        ));
        line.extend(reason.map(|reason| format!(" (before that: {})", words(reason))));
    } else if let Some(shared) = &found.shared {
        line.push(format!(" {}", summary(shared)));
    } else {
        line.extend(reason.map(|reason| format!(" {}", words(reason))));
        line.extend(found.last_token.map(|token| format!(" last token {token}")));
    }
    if found.waiting > 0 || what == "line" {
        line.push(format!(" {} waiting", found.waiting));
    }
    out::text(&(line.join(" ") + "\n"))
}

/// Shows a time since 1970 as the time of day, in UTC.
fn time_of_day(time: Duration) -> String {
    let now = time.as_secs();
    let (hours, minutes) = (now / 3_600 % 24, now / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}Z", now % 60)
}
