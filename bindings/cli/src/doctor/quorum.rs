//! Checks a quorum: each of its servers, and all of them together.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use leasehold::{LeaseEvent, LeaseEvents, Locker};
use leasehold_engine::protocol::LockKey;

use super::{Found, Level, Report, locks, look_at, probe_name, settings, works};
use crate::args::DoctorArgs;
use crate::connect::{connect, place};
use crate::exit::{Failure, STORE_AWAY, USAGE};
use crate::out;
use crate::probe::Probe;
use crate::times::show;

/// Checks each server of a quorum, and then all of them together.
pub(super) async fn look(
    args: &DoctorArgs,
    urls: &[String],
    locker: Result<Locker, Failure>,
    report: &mut Report,
) -> Result<(), Failure> {
    // A mistake in the list of servers is not the fault of one server.
    let locker = match locker {
        Err(failure) if failure.exit == USAGE => return Err(failure),
        locker => locker,
    };
    let mut probes = Vec::new();
    for (at, url) in urls.iter().enumerate() {
        report.server = Some(at + 1);
        if !report.json {
            out::text(&format!("{}\n", place(urls, at)))?;
        }
        let alone = connect(
            slice::from_ref(url),
            settings(args),
            Some(super::TO_CONNECT),
        )
        .await;
        match look_at(args, url, alone, report).await {
            Ok((probe, locker)) => {
                if let Some(locker) = locker {
                    locker.shutdown().await;
                }
                probes.push(probe);
            }
            Err(failure) => report.say([away(&failure)])?,
        }
    }
    report.server = None;
    if !report.json {
        out::text("all of them\n")?;
    }
    let locker = locker?;
    let mut events = locker.events();
    report.say([works(&locker).await])?;
    report.say(votes(&mut events, (probes.len(), urls.len())))?;
    if let Some(probe) = probes.first() {
        report.say(locks::look(&locker, probe).await)?;
    }
    locker.shutdown().await;
    Ok(())
}

pub(super) fn away(failure: &Failure) -> Found {
    if failure.exit != STORE_AWAY {
        return Found::new("reachable", Level::Bad, failure.to_string())
            .so("no program can use the quorum while one of its servers refuses it");
    }
    Found::new("reachable", Level::Warning, failure.to_string())
        .so("the quorum goes on without this server as long as a majority is there")
}

/// Reports how many servers vote, and which reachable ones do not.
fn votes(events: &mut LeaseEvents, (there, of): (usize, usize)) -> Vec<Found> {
    let mut silent = BTreeMap::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        match event {
            LeaseEvent::Quarantined { server, remaining } => _ = silent.insert(server, remaining),
            LeaseEvent::Readmitted { server } => _ = silent.remove(&server),
            _ => {}
        }
    }
    let (voting, needed) = (there.saturating_sub(silent.len()), of / 2 + 1);
    let what = format!("{voting} of {of} servers vote; a majority is {needed}");
    let mut found: Vec<_> = silent.into_iter().map(quarantined).collect();
    found.push(if voting == of {
        Found::good("votes", what)
    } else if voting > needed {
        let more = voting - needed;
        Found::new("votes", Level::Warning, what).so(format!(
            "locks are lost if more than {more} of these fail as well"
        ))
    } else {
        Found::new("votes", Level::Warning, what).so(
            "if one of these fails as well, no lock can be taken, and those that are held are lost",
        )
    });
    found
}

fn quarantined((server, left): (u32, Duration)) -> Found {
    let what = format!(
        "server {server} does not vote for another {}: it was restarted, flushed or replaced",
        show(left)
    );
    Found::new("votes", Level::Note, what)
        .so("it may have forgotten locks, and counts as missing until then")
        .todo("do not restart another server until then")
}

/// Reports the longest time to live that the server stores, if it belongs to a quorum.
pub(super) async fn kept(probe: &Probe, namespace: &str) -> Option<Found> {
    let key = LockKey::new(namespace, &probe_name()).ok()?.mark();
    let kept = probe.ask(&["HGET", key.lock(), "longest"]).await.ok()?;
    let longest = show(Duration::from_millis(kept.as_u64()?));
    let what =
        format!("the server belongs to a quorum with leases of up to {longest} (longest_ttl)");
    let so = format!(
        "after a restart it does not vote for {longest}; lockers with another longest_ttl are refused"
    );
    let todo = format!(
        "to change it, stop all lockers, wait for {longest}, run DEL {} at every server, and start the lockers again",
        key.lock()
    );
    let found = Found::new("quorum", Level::Note, what);
    Some(found.so(so).todo(todo))
}
