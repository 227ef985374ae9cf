//! The page that shows a run. It is one file and fetches nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::checks::{Round, Verdict};
use crate::history::{Event, Outcome};

const PAGE: &str = include_str!("report.html");
/// The place of the data in the page.
const DATA: &str = "/*DATA*/";

/// A round as the page shows it. Times are milliseconds since its begin.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    number: u64,
    topology: String,
    seed: u64,
    result: String,
    violations: Vec<String>,
    clients: Vec<String>,
    length: u64,
    leases: Vec<Bar>,
    faults: Vec<Mark>,
    /// When a request was refused as stale, and the place of its client.
    refused: Vec<(u64, usize)>,
}

#[derive(Clone, Debug, Serialize)]
struct Bar {
    client: usize,
    name: String,
    token: u64,
    from: u64,
    to: u64,
    lost: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Mark {
    kind: String,
    target: String,
    from: u64,
    to: u64,
}

impl Shown {
    /// Makes the picture of a round.
    pub fn new(number: u64, round: &Round, seed: u64, result: String, verdict: &Verdict) -> Self {
        let begin = round.entries.first().map_or(0, |entry| entry.at);
        let end = round.entries.last().map_or(0, |entry| entry.at);
        let since = |at: u64| at.saturating_sub(begin) / 1_000_000;
        // A row for each worker, whatever process it runs in.
        let row = |client: &str| {
            let (process, worker) = client.split_once('/').unwrap_or((client, "0"));
            let process = process.split('.').next().unwrap_or_default();
            format!("{process}/{worker}")
        };
        let rows: BTreeSet<String> = round
            .entries
            .iter()
            .map(|entry| row(&entry.client))
            .collect();
        let clients: Vec<String> = rows.into_iter().collect();
        let place = |client: &str| clients.binary_search(&row(client)).unwrap_or(0);
        let leases = round.leases().into_iter().map(|lease| Bar {
            client: place(&lease.client),
            name: lease.name,
            token: lease.token,
            from: since(lease.back),
            to: since(lease.valid),
            lost: lease.lost,
        });
        let faults = round.faults.iter().map(|fault| Mark {
            kind: fault.kind.name(),
            target: fault.target.clone(),
            from: since(fault.at),
            to: since(fault.until.min(end)),
        });
        let refused = round.entries.iter();
        let refused = refused
            .filter(|entry| entry.event == Event::Return && entry.outcome == Some(Outcome::Stale))
            .map(|entry| (since(entry.at), place(&entry.client)));
        Self {
            number,
            topology: round.topology.to_string(),
            seed,
            result,
            violations: verdict.violations.clone(),
            leases: leases.collect(),
            faults: faults.collect(),
            refused: refused.collect(),
            length: since(end),
            clients,
        }
    }
}

/// Writes the page.
pub fn write(path: &Path, summary: &str, rounds: &[Shown]) -> io::Result<()> {
    let data = serde_json::to_string(&(summary, rounds))?;
    // Within a script only this could end it.
    let data = data.replace("</", "<\\/");
    std::fs::write(path, PAGE.replace(DATA, &data))
}
