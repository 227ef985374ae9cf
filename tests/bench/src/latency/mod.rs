//! The latency of an acquire with its release at fixed rates, where arrivals wait for nothing, as ratios to other
//! sides in the same rounds. Each pair has its own name, so none waits for a lock.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::arrivals::{self, Plan};
use crate::languages::{self, Program};
use crate::peer::{Peer, number};
use crate::stats::{self, median, permille, ratios, server_time};
use crate::{Options, Result};

/// The measured percentiles, in thousandths, and their names.
pub(crate) const PARTS: [usize; 4] = [500, 900, 990, 999];
const PART_NAMES: [&str; 4] = ["p50", "p90", "p99", "p99.9"];
/// The rates of each language: the faster ones are more than redlock can serve.
pub(crate) const RATES: [u32; 3] = [1_000, 5_000, 20_000];
pub(crate) const NODE_RATES: [u32; 2] = [1_000, 5_000];
const RUST_SIDES: [&str; 2] = ["leasehold", "fred"];
const NODE_SIDES: [&str; 4] = [
    "leasehold",
    "leasehold by URL",
    "bare SET NX",
    "redlock 5 beta",
];
/// A run of more turns would take longer than anyone waits.
const LONGEST_RUN: Duration = Duration::from_secs(30 * 60);
/// What a side does first, so that a virtual machine has compiled its code.
const WARM_UP: &str = "pairs 64 1500";

/// The result of a side in a round.
#[derive(Clone, Serialize)]
pub(crate) struct Turn {
    /// Microseconds from when a pair was due until its lock was acquired, and until it was released, by [`PARTS`].
    acquired: [f64; 4],
    pub(crate) released: [f64; 4],
    /// Microseconds of processor time of a pair, in the side's program and in its server.
    client: f64,
    server: f64,
    /// Script calls of a pair.
    scripts: f64,
    /// Pairs that were not begun, because too many were under way.
    pub(crate) refused: f64,
    /// How late the arrivals were sent, in microseconds: the 99th percentile. It is part of each latency.
    late: f64,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let (rounds, seconds) = match options.quick {
        true => (3, 1),
        false => (options.rounds.unwrap_or(5), options.seconds),
    };
    let rates = match (&options.rates[..], options.node) {
        ([], true) => &NODE_RATES[..],
        ([], false) => &RATES,
        (rates, _) => rates,
    };
    let mut peers = Vec::new();
    for program in sides(options)? {
        let mut peer = Peer::start(&program).await?;
        peer.tell(WARM_UP).await;
        peers.push(peer);
    }
    let length = Duration::from_secs(seconds.into());
    let turns = (rounds + 1) * rates.len() * peers.len();
    if length * u32::try_from(turns)? > LONGEST_RUN {
        return Err(format!(
            "{turns} turns of {length:?} are longer than {LONGEST_RUN:?}: ask for fewer rounds"
        )
        .into());
    }
    println!("latency: medians of {rounds} rounds of {seconds} s, in µs since each pair was due");
    for &rate in rates {
        let mut all: Vec<Vec<Turn>> = peers.iter().map(|_| Vec::new()).collect();
        for round in 0..=rounds {
            for (peer, turns) in peers.iter_mut().zip(&mut all) {
                let turn = turn(peer, rate, length, round).await?;
                // The first round warms up.
                turns.extend((round > 0).then_some(turn));
            }
        }
        show(rate, &peers, &all);
    }
    Ok(())
}

/// Builds the programs, and returns the wanted sides, ours first.
fn sides(options: &Options) -> Result<Vec<Program>> {
    let (language, default) = match options.node {
        true => ("Node", &NODE_SIDES[..]),
        false => ("Rust", &RUST_SIDES[..]),
    };
    let (mut programs, skipped) = languages::make(&[language]);
    if let Some(why) = skipped.first() {
        return Err(why.clone().into());
    }
    let is = |program: &Program, name: &str| [program.name, program.argument].contains(&name);
    for name in &options.only {
        if !programs.iter().any(|program| is(program, name)) {
            let names: Vec<_> = programs.iter().map(|program| program.argument).collect();
            return Err(format!(
                "there is no side {name:?} in {language}, only {}",
                names.join(", ")
            )
            .into());
        }
    }
    programs.retain(|program| match &options.only[..] {
        [] => default.contains(&program.argument),
        only => only.iter().any(|name| is(program, name)),
    });
    if !options.node {
        for program in &mut programs {
            program
                .command
                .extend(["--threads".to_owned(), options.threads.to_string()]);
        }
    }
    Ok(programs)
}

/// Lets a side serve the arrivals of a round, which are the same for all sides.
pub(crate) async fn turn(
    peer: &mut Peer,
    rate: u32,
    length: Duration,
    round: usize,
) -> Result<Turn> {
    // Names of the round before would make the server's tables grow, and growth delays commands.
    peer.admin.flushall().await;
    let seed = u64::from(rate) << 32 | round as u64;
    let path = peer.folder().join("arrivals.sock");
    let (server, scripts) = (
        server_time(&mut peer.admin).await?,
        peer.admin.script_calls().await,
    );
    let work = format!("open {}", path.display());
    let (late, done) = futures::join!(
        arrivals::serve(&path, Plan { rate, length, seed }),
        peer.tell(&work)
    );
    let failed = || format!("{} failed: {}", peer.program.name, peer.failures.join("; "));
    let (done, late) = (done.ok_or_else(failed)?, late?);
    let [acquired, released] = [times(&done, "acquired")?, times(&done, "released")?];
    let count = released.len() as f64;
    Ok(Turn {
        acquired: PARTS.map(|part| permille(&acquired, part)),
        released: PARTS.map(|part| permille(&released, part)),
        client: number(&done, "processor")? / count,
        server: (server_time(&mut peer.admin).await? - server) / count,
        scripts: (peer.admin.script_calls().await - scripts) as f64 / count,
        refused: number(&done, "refused")?,
        late: permille(&late, 990),
    })
}

/// Returns the microseconds that a program reports.
fn times(done: &Value, field: &str) -> Result<Vec<f64>> {
    let times = done[field]
        .as_array()
        .map(|times| times.iter().filter_map(Value::as_f64).collect());
    let times: Vec<f64> = times.ok_or_else(|| format!("a side reports no {field}"))?;
    if times.is_empty() {
        return Err(format!("a side reports no {field}").into());
    }
    Ok(times)
}

fn show(rate: u32, peers: &[Peer], all: &[Vec<Turn>]) {
    let late = all
        .iter()
        .flatten()
        .map(|turn| turn.late)
        .collect::<Vec<_>>();
    println!(
        "\n{rate} pairs a second; 99 % of the arrivals were at most {} µs late",
        stats::number(median(&late))
    );
    let names = PART_NAMES.map(|name| format!("{name:>8}")).concat();
    println!(
        "{:<36}{names}   acquired {names} {:>17} {:>8} {:>8}",
        "", "µs client+server", "scripts", "refused"
    );
    for (peer, turns) in peers.iter().zip(all) {
        let figure = |of: fn(&Turn) -> f64| median(&turns.iter().map(of).collect::<Vec<_>>());
        println!(
            "  {:<34}{}            {} {:>8.1} + {:>6.1} {:>8.2} {:>8.0}",
            peer.program.name,
            row(0, |part| median(
                &part_of(turns, part, |turn| &turn.released)
            )),
            row(0, |part| median(
                &part_of(turns, part, |turn| &turn.acquired)
            )),
            figure(|turn| turn.client),
            figure(|turn| turn.server),
            figure(|turn| turn.scripts),
            turns.iter().map(|turn| turn.refused).sum::<f64>(),
        );
    }
    let own = all.first().map_or(&[][..], Vec::as_slice);
    for (peer, turns) in peers.iter().zip(all).skip(1) {
        let to = |of: fn(&Turn) -> &[f64; 4]| {
            row(2, |part| {
                median(&ratios(&part_of(own, part, of), &part_of(turns, part, of)))
            })
        };
        let name = format!("ours / {}", peer.program.name);
        println!(
            "  {name:<34}{}            {}",
            to(|turn| &turn.released),
            to(|turn| &turn.acquired)
        );
    }
}

fn row(digits: usize, figure: impl Fn(usize) -> f64) -> String {
    let cells = (0..PARTS.len()).map(|part| format!("{:>8.digits$}", figure(part)));
    cells.collect()
}

fn part_of(turns: &[Turn], part: usize, of: fn(&Turn) -> &[f64; 4]) -> Vec<f64> {
    turns.iter().map(|turn| of(turn)[part]).collect()
}
