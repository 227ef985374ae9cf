//! `leasehold doctor`: checks a store for everything that locks need.

mod locks;
mod quorum;
mod rights;
mod server;

use std::time::Duration;

use anstyle::{AnsiColor, Color, Style};
use leasehold::{Finding, Locker, Name};
use leasehold_observe::escaped;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::connect::connect;
use crate::exit::Failure;
use crate::out::{self, styled};
use crate::probe::Probe;

/// The time in which all connections must be made.
const TO_CONNECT: Duration = Duration::from_secs(10);
const PROBE_TTL: Duration = Duration::from_secs(2);

/// How bad a finding is. The last two levels have exit codes of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Level {
    /// All is well.
    Good,
    /// Worth knowing.
    Note,
    /// Something does not work as well as it could, or may go wrong.
    Warning,
    /// Locks cannot be kept, or may be lost while they are held.
    Bad,
}

/// A finding: what was found, what follows, and what to do.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    check: &'static str,
    level: Level,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    so: Option<String>,
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    todo: Option<String>,
    /// The server's place in the list of a quorum, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<usize>,
}

impl Found {
    fn new(check: &'static str, level: Level, what: impl AsRef<str>) -> Self {
        Self {
            check,
            level,
            what: escaped(what.as_ref()),
            so: None,
            todo: None,
            server: None,
        }
    }

    fn good(check: &'static str, what: impl AsRef<str>) -> Self {
        Self::new(check, Level::Good, what)
    }

    fn so(mut self, so: impl Into<String>) -> Self {
        self.so = Some(so.into());
        self
    }

    fn todo(mut self, todo: impl Into<String>) -> Self {
        self.todo = Some(todo.into());
        self
    }
}

/// The printed findings, and the worst level among them.
struct Report {
    json: bool,
    worst: Level,
    /// The server's place in the list of a quorum, from 1.
    server: Option<usize>,
}

impl Report {
    fn say(&mut self, found: impl IntoIterator<Item = Found>) -> Result<(), Failure> {
        for mut found in found {
            found.server = self.server;
            self.worst = self.worst.max(found.level);
            if self.json {
                out::json(&found)?;
            } else {
                out::text(&shown(&found))?;
            }
        }
        Ok(())
    }

    fn code(&self) -> u8 {
        match self.worst {
            Level::Good | Level::Note => 0,
            Level::Warning => 1,
            Level::Bad => 2,
        }
    }
}

fn shown(found: &Found) -> String {
    let (word, color) = match found.level {
        Level::Good => ("good", AnsiColor::Green),
        Level::Note => ("note", AnsiColor::Blue),
        Level::Warning => ("warning", AnsiColor::Yellow),
        Level::Bad => ("bad", AnsiColor::Red),
    };
    let style = Style::new().bold().fg_color(Some(Color::Ansi(color)));
    let word = styled(&format!("{word:<7}"), style);
    let mut lines = format!("{word}  {:<11}  {}\n", found.check, found.what);
    for (label, text) in [("so", &found.so), ("do", &found.todo)] {
        if let Some(text) = text {
            lines.push_str(&[" ".repeat(22), format!("{label}: {text}\n")].concat());
        }
    }
    lines
}

pub(crate) fn main(args: &DoctorArgs) -> Result<u8, Failure> {
    crate::block_on(doctor(args))
}

async fn doctor(args: &DoctorArgs) -> Result<u8, Failure> {
    let mut report = Report {
        json: args.json,
        worst: Level::Good,
        server: None,
    };
    let urls = args.store.urls()?;
    let locker = connect(&urls, settings(args), Some(TO_CONNECT)).await;
    if urls[0].starts_with("memory:") {
        locker?.shutdown().await;
        report.say([in_memory()])?;
        return Ok(report.code());
    }
    let [url] = &urls[..] else {
        quorum::look(args, &urls, locker, &mut report).await?;
        return Ok(report.code());
    };
    let (probe, locker) = look_at(args, url, locker, &mut report).await?;
    if let Some(locker) = locker {
        report.say(locks::look(&locker, &probe).await)?;
        locker.shutdown().await;
    }
    Ok(report.code())
}

/// Returns settings with a short retention, so that the store forgets the doctor's names soon.
fn settings(args: &DoctorArgs) -> leasehold::Builder {
    args.store.builder().token_retention(PROBE_TTL / 2)
}

/// Checks one server. Returns a connection to it, and the locker if locks can be taken.
async fn look_at(
    args: &DoctorArgs,
    url: &str,
    locker: Result<Locker, Failure>,
    report: &mut Report,
) -> Result<(Probe, Option<Locker>), Failure> {
    let probe = match Probe::connect(url).await {
        Ok(probe) => probe,
        // The library's error is more precise.
        Err(failure) => return Err(locker.err().unwrap_or(failure)),
    };
    report.say([Found::good("reachable", "the store accepts connections")])?;
    report.say(server::pace(&probe).await)?;
    report.say(server::look(&probe).await)?;
    report.say(quorum::kept(&probe, args.store.namespace()).await)?;
    report.say(rights::look(&probe, url, args.store.namespace()).await?)?;
    match locker {
        Ok(locker) => {
            report.say(locker.findings().iter().map(finding))?;
            report.say([works(&locker).await])?;
            Ok((probe, Some(locker)))
        }
        Err(failure) => {
            let found = Found::new("usable", Level::Bad, failure.to_string());
            report.say([found.so("no lock can be taken")])?;
            Ok((probe, None))
        }
    }
}

/// Runs only the checks that cost a server little and leave nothing behind, for the page of `leasehold serve`.
#[cfg(feature = "serve")]
pub(crate) async fn glance(urls: &[String], locker: &Locker) -> Vec<Found> {
    if urls[0].starts_with("memory:") {
        return vec![in_memory()];
    }
    let mut all = Vec::new();
    for (at, url) in urls.iter().enumerate() {
        let mut found = match Probe::connect(url).await {
            Ok(probe) => glance_at(probe).await,
            Err(failure) if urls.len() > 1 => vec![quorum::away(&failure)],
            Err(failure) => vec![Found::new("reachable", Level::Bad, failure.to_string())],
        };
        if urls.len() > 1 {
            for found in &mut found {
                found.server = Some(at + 1);
                found.what = format!("server {}: {}", at + 1, found.what);
            }
        }
        all.extend(found);
    }
    all.extend(locker.findings().iter().map(finding));
    all
}

#[cfg(feature = "serve")]
async fn glance_at(probe: Probe) -> Vec<Found> {
    let mut all = server::pace(&probe).await;
    all.extend(server::look(&probe).await);
    probe.quit().await;
    all
}

fn in_memory() -> Found {
    let note = "locks in memory exist in one process only: there is nothing to check";
    Found::new("reachable", Level::Note, note)
}

/// Converts a finding that the library made when it connected.
fn finding(finding: &Finding) -> Found {
    match finding {
        Finding::Eviction { policy } => Found::new(
            "eviction",
            Level::Bad,
            format!("maxmemory-policy is {policy}"),
        )
        .so("a full server deletes held locks, and the next client that asks gets them")
        .todo("CONFIG SET maxmemory-policy noeviction, and in the server's configuration"),
        other => Found::new("store", Level::Warning, other.to_string()),
    }
}

/// Takes a lock, and releases it.
async fn works(locker: &Locker) -> Found {
    let start = std::time::Instant::now();
    let tried = async {
        let lock = locker.lock(probe_name().as_str())?.ttl(PROBE_TTL);
        match lock.try_acquire().await? {
            Some(lease) => lease.release().await,
            None => Ok(()),
        }
    };
    match tried.await {
        Ok(()) => {
            let took = server::exactly(start.elapsed());
            Found::good(
                "usable",
                format!("a lock was taken and released within {took}"),
            )
        }
        Err(error) => {
            Found::new("usable", Level::Bad, error.to_string()).so("no lock can be taken")
        }
    }
}

/// Returns the name of a lock that nobody else uses.
fn probe_name() -> Name {
    Name::new(format!("leasehold-doctor/{}", std::process::id())).expect("it is short")
}
