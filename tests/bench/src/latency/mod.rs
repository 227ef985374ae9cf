//! The latency of an acquire with its release at fixed rates, where arrivals wait for nothing, as ratios to other
//! sides in the same rounds. Each pair has its own name, so none waits for a lock.

mod arrivals;
mod plot;
mod text;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::languages::{self, NODE, Program, RUST};
use crate::peer::{Peer, number};
use crate::report::{self, Section};
use crate::stats::{self, median, permille, ratios, server_time};
use crate::{Options, Result};
use arrivals::Plan;

/// The measured percentiles, in thousandths, and their names.
const PARTS: [usize; 4] = [500, 900, 990, 999];
const PART_NAMES: [&str; 4] = ["p50", "p90", "p99", "p99.9"];
/// The places in [`PARTS`] of the percentiles in tables and plots.
const SHOWN: [usize; 2] = [0, 2];
/// The command that a side runs before it is measured, so that a virtual machine has compiled its code.
const WARM_UP: &str = "pairs 64 1500";
/// A longer run is refused.
const LONGEST_RUN: Duration = Duration::from_secs(30 * 60);

/// The marks of the section of the book's page.
pub(crate) const SECTION: Section = Section {
    begin: "<!-- bench latency: begin -->",
    end: "<!-- bench latency: end -->",
};

/// The rates and the sides of a language.
struct Language {
    name: &'static str,
    /// The rates for a table, and those for a plot. Node gets fewer: redlock cannot serve more.
    rates: &'static [u32],
    curve: &'static [u32],
    /// The sides, by their names in the program.
    sides: &'static [&'static str],
}

const LANGUAGES: [Language; 2] = [
    Language {
        name: RUST,
        rates: &[1_000, 5_000, 20_000],
        curve: &[1_000, 2_000, 5_000, 10_000, 20_000],
        sides: &["leasehold", "fred-tokens", "fred"],
    },
    Language {
        name: NODE,
        rates: &[1_000, 5_000],
        curve: &[500, 1_000, 2_000, 5_000],
        sides: &[
            "leasehold",
            "leasehold by URL",
            "bare SET NX",
            "redlock 5 beta",
        ],
    },
];

/// The results of a side.
#[derive(Serialize)]
pub(crate) struct Side {
    name: &'static str,
    language: &'static str,
    version: String,
    /// The side that it is compared with.
    base: &'static str,
    /// The rounds by rate.
    rates: BTreeMap<u32, Vec<Turn>>,
}

/// The result of a side in a round.
#[derive(Serialize)]
struct Turn {
    /// Microseconds from when a pair was due until its lock was acquired, and until it was released, by [`PARTS`].
    acquired: [f64; 4],
    released: [f64; 4],
    /// Microseconds of processor time of a pair, in the side's program and in its server.
    client: f64,
    server: f64,
    /// Script calls of a pair.
    scripts: f64,
    /// The pairs that were not begun, because too many were under way.
    refused: f64,
    /// How late the arrivals were sent, in microseconds: the 99th percentile. It is part of each latency.
    late: f64,
}

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rounds: usize,
    pub(crate) length: Duration,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let size = Size {
        rounds: if options.quick {
            3
        } else {
            options.rounds.unwrap_or(5)
        },
        length: Duration::from_secs(if options.quick {
            1
        } else {
            options.seconds.into()
        }),
    };
    let mut all = Vec::new();
    for language in &LANGUAGES {
        if !options.book && (language.name == NODE) != options.node {
            continue;
        }
        let rates = match &options.rates[..] {
            [] if options.book => language.curve,
            [] => language.rates,
            rates => rates,
        };
        let programs = language.programs(options)?;
        let turns = (size.rounds + 1) * rates.len() * programs.len();
        if size.length * u32::try_from(turns)? > LONGEST_RUN {
            let length = size.length;
            return Err(format!(
                "{turns} turns of {length:?} are longer than {LONGEST_RUN:?}: ask for fewer"
            )
            .into());
        }
        let mut peers = Vec::new();
        for program in programs {
            peers.push(Peer::start(&program).await?);
        }
        let sides = measure(&mut peers.iter_mut().collect::<Vec<_>>(), rates, size).await?;
        println!(
            "latency in {}: medians of {} rounds of {:?}, in µs since each pair was due",
            language.name, size.rounds, size.length
        );
        for &rate in rates {
            show(rate, &sides);
        }
        all.extend(sides);
    }
    if options.book {
        let conditions = report::conditions();
        let text = format!("{conditions}\n\n{}", markdown(&all, report::FIGURES));
        report::write_page(&SECTION, &text)?;
        write_plots(&all, &report::figures())?;
    }
    Ok(())
}

/// Measures the peers in the languages that know open loops, for a report. A side that fails is left out.
pub(crate) async fn of_report(peers: &mut [Peer], size: Size) -> Result<Vec<Side>> {
    let mut all = Vec::new();
    for language in &LANGUAGES {
        let is =
            |peer: &&mut Peer| peer.program.language == language.name && !peer.program.waits_only;
        let mut peers: Vec<_> = peers.iter_mut().filter(is).collect();
        all.extend(measure(&mut peers, language.curve, size).await?);
    }
    Ok(all)
}

/// Lets all sides take turns at each rate, in rounds of which the first warms up.
async fn measure(peers: &mut [&mut Peer], rates: &[u32], size: Size) -> Result<Vec<Side>> {
    let mut sides: Vec<_> = peers.iter().map(|peer| Side::new(peer)).collect();
    for peer in &mut *peers {
        peer.tell(WARM_UP).await;
    }
    for &rate in rates {
        for round in 0..=size.rounds {
            eprintln!(
                "latency: {rate} pairs a second, round {round} of {}",
                size.rounds
            );
            for (peer, side) in peers.iter_mut().zip(&mut sides) {
                let turn = turn(peer, rate, size.length, round).await?;
                if round > 0 {
                    side.rates.entry(rate).or_default().extend(turn);
                }
            }
        }
    }
    sides.retain(|side| !side.rates.is_empty());
    Ok(sides)
}

/// Lets a side serve the arrivals of a round, which are the same for all sides. Returns nothing if it fails.
async fn turn(peer: &mut Peer, rate: u32, length: Duration, round: usize) -> Result<Option<Turn>> {
    if peer.is_given_up() {
        return Ok(None);
    }
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
    let Some(done) = done else {
        return Ok(None);
    };
    let [acquired, released] = [times(&done, "acquired")?, times(&done, "released")?];
    let count = released.len() as f64;
    Ok(Some(Turn {
        acquired: PARTS.map(|part| permille(&acquired, part)),
        released: PARTS.map(|part| permille(&released, part)),
        client: number(&done, "processor")? / count,
        server: (server_time(&mut peer.admin).await? - server) / count,
        scripts: (peer.admin.script_calls().await - scripts) as f64 / count,
        refused: number(&done, "refused")?,
        late: permille(&late?, 990),
    }))
}

/// Returns the microseconds that a program reports.
fn times(done: &Value, field: &str) -> Result<Vec<f64>> {
    let times = done[field]
        .as_array()
        .map(|times| times.iter().filter_map(Value::as_f64).collect());
    let times: Option<Vec<f64>> = times.filter(|times: &Vec<f64>| !times.is_empty());
    Ok(times.ok_or_else(|| format!("a side reports no times as {field:?}"))?)
}

impl Language {
    /// Builds the programs, and returns the wanted sides, the base first.
    fn programs(&self, options: &Options) -> Result<Vec<Program>> {
        let (mut programs, skipped) = languages::make(&[self.name]);
        if let Some(why) = skipped.first() {
            return Err(why.clone().into());
        }
        let is = |program: &Program, name: &str| [program.name, program.argument].contains(&name);
        let unknown = options
            .only
            .iter()
            .find(|name| !programs.iter().any(|program| is(program, name)));
        if let Some(name) = unknown {
            let known: Vec<_> = programs.iter().map(|program| program.argument).collect();
            return Err(format!(
                "there is no side {name:?} in {}, only: {}",
                self.name,
                known.join(", ")
            )
            .into());
        }
        programs.retain(|program| match &options.only[..] {
            [] => self.sides.contains(&program.argument),
            only => only.iter().any(|name| is(program, name)),
        });
        if self.name == RUST {
            for program in &mut programs {
                program
                    .command
                    .extend(["--threads".to_owned(), options.threads.to_string()]);
            }
        }
        Ok(programs)
    }
}

impl Side {
    fn new(peer: &Peer) -> Self {
        Self {
            name: peer.program.name,
            language: peer.program.language,
            version: peer.process.version.clone(),
            base: peer.program.base,
            rates: BTreeMap::new(),
        }
    }

    fn is_base(&self) -> bool {
        self.name == self.base
    }

    fn rounds(&self) -> usize {
        self.rates.values().next().map_or(0, Vec::len)
    }

    /// Returns a figure of each round at a rate.
    fn each(&self, rate: u32, of: impl Fn(&Turn) -> f64) -> Vec<f64> {
        self.rates
            .get(&rate)
            .into_iter()
            .flatten()
            .map(of)
            .collect()
    }

    /// Returns the median of a figure at a rate.
    fn figure(&self, rate: u32, of: impl Fn(&Turn) -> f64) -> f64 {
        median(&self.each(rate, of))
    }

    /// Returns the median of the ratios of this side's figure to the other's.
    fn ratio(&self, other: &Self, rate: u32, of: impl Fn(&Turn) -> f64) -> f64 {
        median(&ratios(&self.each(rate, &of), &other.each(rate, &of)))
    }

    /// Returns the latency at each rate, as one of [`PARTS`].
    fn curve(&self, part: usize) -> Vec<(f64, f64)> {
        let rates = self.rates.keys();
        rates
            .map(|&rate| {
                (
                    f64::from(rate),
                    self.figure(rate, |turn| turn.released[part]),
                )
            })
            .collect()
    }
}

/// Returns the sides of each language.
fn by_language(sides: &[Side]) -> Vec<(&'static str, Vec<&Side>)> {
    let of = |name| {
        sides
            .iter()
            .filter(|side| side.language == name)
            .collect::<Vec<_>>()
    };
    let languages = LANGUAGES
        .iter()
        .map(|language| (language.name, of(language.name)));
    languages.filter(|(_, sides)| !sides.is_empty()).collect()
}

/// Returns a table and a plot for each language, whose plots are in this folder as seen from the text.
pub(crate) fn markdown(sides: &[Side], folder: &str) -> String {
    text::markdown(sides, folder)
}

/// Returns the name of a language's plot.
fn file(language: &str) -> String {
    format!("latency-{}.svg", language.to_lowercase())
}

/// Writes a plot for each language.
pub(crate) fn write_plots(sides: &[Side], folder: &Path) -> Result<()> {
    for (language, sides) in by_language(sides) {
        std::fs::write(folder.join(file(language)), plot::curves(language, &sides)?)?;
    }
    Ok(())
}

/// Prints all figures at a rate.
fn show(rate: u32, sides: &[Side]) {
    let late: Vec<_> = sides
        .iter()
        .map(|side| side.figure(rate, |turn| turn.late))
        .collect();
    println!(
        "\n{rate} pairs a second; 99 % of the arrivals were at most {} µs late",
        stats::number(median(&late))
    );
    let names = PART_NAMES.map(|name| format!("{name:>8}")).concat();
    println!(
        "{:<36}{names}  acquired{names} {:>17} {:>8} {:>8}",
        "", "µs client+server", "scripts", "refused"
    );
    let row = |digits: usize, figure: &dyn Fn(usize) -> f64| {
        let cells = (0..PARTS.len()).map(|part| format!("{:>8.digits$}", figure(part)));
        cells.collect::<String>()
    };
    for side in sides {
        println!(
            "  {:<34}{}          {} {:>8.1} + {:>6.1} {:>8.2} {:>8.0}",
            side.name,
            row(0, &|part| side.figure(rate, |turn| turn.released[part])),
            row(0, &|part| side.figure(rate, |turn| turn.acquired[part])),
            side.figure(rate, |turn| turn.client),
            side.figure(rate, |turn| turn.server),
            side.figure(rate, |turn| turn.scripts),
            side.each(rate, |turn| turn.refused).iter().sum::<f64>(),
        );
    }
    let Some((own, others)) = sides.split_first() else {
        return;
    };
    for other in others {
        println!(
            "  {:<34}{}          {}",
            format!("{} / {}", own.name, other.name),
            row(2, &|part| own
                .ratio(other, rate, |turn| turn.released[part])),
            row(2, &|part| own
                .ratio(other, rate, |turn| turn.acquired[part])),
        );
    }
}
