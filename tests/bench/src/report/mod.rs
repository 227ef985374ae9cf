//! Leasehold beside its peers: pairs, handoffs, held leases and losses in one report as Markdown, JSON and
//! plots.
//!
//! Each side is a program that takes commands line by line, on a redis-server of its own. Sides take turns in
//! each round, so that a ratio compares neighbors in time.

mod measure;
mod plot;
mod results;
mod text;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::languages::{self, output, root};
use crate::peer::Peer;
use crate::{Options, Result};
use results::Results;

/// The lines of the page between which the report writes.
const BEGIN: &str = "<!-- bench report: begin -->";
const END: &str = "<!-- bench report: end -->";
/// The page of the book that shows the main table and a plot.
const PAGE: &str = "docs/book/src/measurements.md";
/// The folder of the page's plot, seen from the page.
const FIGURES: &str = "figures";

/// The measurements, their sizes and their conditions.
struct Plan {
    /// The command line.
    command: String,
    date: String,
    /// The versions of the machine and its server.
    versions: String,
    rounds: usize,
    warm_up_millis: u64,
    pairs_millis: u64,
    handoff_rounds: usize,
    handoff_millis: u64,
    leases: usize,
    held: Duration,
    /// The output of `bench guards`.
    guards: Option<String>,
    /// The gzipped bytes that each package adds to a bundle.
    sizes: Vec<(String, u64)>,
    /// The parts that are not measured, and why.
    skipped: Vec<String>,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    let (programs, skipped) = languages::make(&languages::chosen(&options.only)?);
    let mut plan = Plan::new(options, skipped);
    plan.add_sizes();
    plan.add_guards(options);
    let mut peers = Vec::new();
    for program in &programs {
        match Peer::start(program).await {
            Ok(peer) => peers.push(peer),
            Err(error) => {
                eprintln!("!! NOT MEASURED: {}: {error}", program.name);
                plan.skipped
                    .push(format!("{}, because {error}", program.name));
            }
        }
    }
    let mut results = Results::new(&peers);
    measure::pairs(&plan, &mut peers, &mut results).await?;
    revive(&mut peers).await?;
    measure::handoff(&plan, &mut peers, &mut results).await?;
    revive(&mut peers).await?;
    measure::held(&plan, &mut peers, &mut results).await?;
    revive(&mut peers).await?;
    measure::loss(&mut peers, &mut results).await?;
    for (peer, measured) in peers.iter().zip(&mut results.sides) {
        measured.failed = !peer.failures.is_empty();
        plan.skipped.extend(peer.failures.iter().cloned());
    }

    let folder = root().join("target/bench");
    fs::create_dir_all(&folder)?;
    let json = serde_json::to_string_pretty(&results)?;
    fs::write(folder.join("report.json"), json)?;
    plot::all(&results, &folder)?;
    let report = text::report(&plan, &results);
    fs::write(folder.join("report.md"), &report)?;
    println!(
        "{report}\n== report: {}: report.md, report.json, *.svg",
        folder.display()
    );
    if options.book {
        write_page(&text::page(&plan, &results), &folder.join(plot::MAIN))?;
    }
    Ok(())
}

async fn revive(peers: &mut [Peer]) -> Result<()> {
    for peer in peers {
        peer.revive().await?;
    }
    Ok(())
}

impl Plan {
    fn new(options: &Options, skipped: Vec<String>) -> Self {
        let pick = |quickly: u64, fully: u64| if options.quick { quickly } else { fully };
        let rounds = |quickly: usize, fully: usize| if options.quick { quickly } else { fully };
        let printed = |program: &str, arg: &str| {
            let printed = output(Command::new(program).arg(arg), "").unwrap_or_default();
            printed.lines().next().unwrap_or_default().trim().to_owned()
        };
        let server = printed("redis-server", "--version");
        let server = server
            .split_whitespace()
            .find_map(|word| word.strip_prefix("v="));
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let args: Vec<_> = std::env::args().skip(1).collect();
        Self {
            command: format!("cargo xtask bench {}", args.join(" ")),
            date: printed("date", "+%Y-%m-%d"),
            versions: format!(
                "Redis {}, {}, Node {}, {cores} cores",
                server.unwrap_or("of unknown version"),
                printed("rustc", "--version"),
                printed("node", "--version"),
            ),
            rounds: rounds(3, 9),
            warm_up_millis: pick(300, 1_000),
            pairs_millis: pick(150, 300),
            handoff_rounds: rounds(1, 3),
            handoff_millis: pick(300, 700),
            leases: rounds(2_000, 10_000),
            held: Duration::from_secs(30),
            guards: None,
            sizes: Vec::new(),
            skipped,
        }
    }

    /// Adds the sizes of the npm packages in a bundle.
    fn add_sizes(&mut self) {
        let printed = output(Command::new("node").arg("sizes.mjs"), "tests/bench/node");
        match printed.and_then(|text| Ok(serde_json::from_str(&text)?)) {
            Ok(sizes) => self.sizes = sizes,
            Err(error) => self.skipped.push(format!("sizes, because {error}")),
        }
    }

    /// Adds the output of the benchmark of guards, which are no sides, since peers have none.
    fn add_guards(&mut self, options: &Options) {
        if options.quick || !options.only.is_empty() {
            let why = "guards, because of the options: `cargo xtask bench guards`";
            self.skipped.push(why.to_owned());
            return;
        }
        let args = [
            "xtask", "bench", "guards", "--rounds", "5", "--millis", "300",
        ];
        match output(Command::new("cargo").args(args), "") {
            Ok(printed) => self.guards = Some(printed),
            Err(error) => self.skipped.push(format!("guards, because {error}")),
        }
    }
}

/// Writes the main table into the page, and copies the plot beside it.
fn write_page(section: &str, plot: &Path) -> Result<()> {
    let path = root().join(PAGE);
    let text = with_section(&fs::read_to_string(&path)?, section)?;
    let figures = path.with_file_name(FIGURES);
    fs::create_dir_all(&figures)?;
    fs::copy(plot, figures.join(plot::MAIN))?;
    fs::write(&path, text)?;
    println!(
        "== report: written into {PAGE}, with {FIGURES}/{}",
        plot::MAIN
    );
    Ok(())
}

/// Returns the text with another section between the marks.
fn with_section(text: &str, section: &str) -> Result<String> {
    let missing = || format!("{PAGE} has no lines `{BEGIN}` and `{END}`");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", section.trim()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{BEGIN, END, FIGURES, PAGE, plot, with_section};
    use crate::languages::root;

    #[test]
    fn replaces_what_is_between_the_marks_and_nothing_else() {
        let page = format!("one\n{BEGIN}\nold\n{END}\ntwo\n");
        let new = with_section(&page, "new\n").expect("it has the marks");
        assert_eq!(new, format!("one\n{BEGIN}\nnew\n{END}\ntwo\n"));
        assert!(with_section("no marks", "new").is_err());
    }

    /// Catches a page that was moved: the report would fail only after an hour of measuring.
    #[test]
    fn the_page_has_the_marks_and_the_plot() {
        let path = root().join(PAGE);
        let text = fs::read_to_string(&path).expect("the page is there");
        assert!(with_section(&text, "new").is_ok());
        assert!(text.contains(&format!("({FIGURES}/{})", plot::MAIN)));
        assert!(path.with_file_name(FIGURES).join(plot::MAIN).is_file());
    }
}
