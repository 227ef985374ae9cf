//! Counts the locks of a store, and describes its longest line and its oldest holder.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use leasehold::{Error, ErrorKind, Inspection, Locker, Name};
use leasehold_observe::escaped;

use super::{Found, Level};
use crate::look::found;
use crate::probe::Probe;
use crate::times::show;

/// The most locks that are counted.
const MOST: usize = 10_000;
const LONG_LINE: u32 = 100;

pub(super) async fn look(locker: &Locker, probe: &Probe) -> Vec<Found> {
    let looked = async {
        let names: BTreeSet<Name> = locker.list("*").take(MOST).try_collect().await?;
        let all: Vec<_> = found(locker, names).try_collect().await?;
        Ok::<Vec<(Name, Inspection)>, Error>(all)
    };
    let all = match looked.await {
        Ok(all) => all,
        // The missing right was reported before.
        Err(error) if error.kind() == ErrorKind::Auth => return Vec::new(),
        Err(error) => {
            let what = format!("the locks cannot be listed: {error}");
            return vec![Found::new("locks", Level::Note, what)];
        }
    };
    let now = probe.time().await.unwrap_or_default();
    let more = if all.len() < MOST { "" } else { " or more" };
    let count = Found::good("locks", format!("{}{more} are held", all.len()));
    let longest = all.iter().max_by_key(|(_, found)| found.waiting);
    let longest = longest.filter(|(_, found)| found.waiting > 0).map(line);
    [Some(count), longest, oldest(&all, now)]
        .into_iter()
        .flatten()
        .collect()
}

fn line((name, found): &(Name, Inspection)) -> Found {
    let waiting = found.waiting;
    let first = found
        .line
        .first()
        .map(|first| format!(", the first for {}", show(first.waited)));
    let what = format!(
        "the longest line is that of {name}, with {waiting} waiting{}",
        first.unwrap_or_default()
    );
    if waiting < LONG_LINE {
        return Found::good("line", what);
    }
    Found::new("line", Level::Note, what)
        .so("each waiter confirms its place every 1 to 5 s")
        .todo("see whether its holder still works (leasehold inspect), or divide what it protects")
}

/// Returns the oldest holder. A token is the server's clock at the acquisition in microseconds, unless it is dense or
/// follows a token from a clock that was ahead.
fn oldest(all: &[(Name, Inspection)], now: Duration) -> Option<Found> {
    let now = u64::try_from(now.as_micros()).ok()?;
    let year = Duration::from_secs(366 * 86_400).as_micros();
    let since = all.iter().filter_map(|(name, found)| {
        let holder = found.holder.as_ref()?;
        let age = now.checked_sub(holder.token.get())?;
        (u128::from(age) < year).then_some((age, name, holder))
    });
    let (age, name, holder) = since.max_by_key(|(age, ..)| *age)?;
    let age = show(Duration::from_micros(age));
    let owner = escaped(holder.owner.label());
    Some(Found::good(
        "holder",
        format!("the oldest holder is {owner}, which has held {name} for {age}"),
    ))
}
