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
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::languages::{self, output, root};
use crate::peer::Peer;
use crate::{Options, Result, latency};
use results::Results;
pub(crate) use text::table;

/// The lines of the page between which a benchmark writes.
pub(crate) struct Section {
    pub(crate) begin: &'static str,
    pub(crate) end: &'static str,
}

const SECTION: Section = Section {
    begin: "<!-- bench report: begin -->",
    end: "<!-- bench report: end -->",
};
/// The page of the book that shows the main table and plots.
const PAGE: &str = "docs/book/src/measurements.md";
/// The folder of the page's plots, seen from the page.
pub(crate) const FIGURES: &str = "figures/";

/// The measurements, their sizes and their conditions.
struct Plan {
    /// The date, the command line, and the versions of the machine and its server.
    conditions: String,
    rounds: usize,
    warm_up_millis: u64,
    pairs_millis: u64,
    latency: latency::Size,
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
    results.latency = latency::of_report(&mut peers, plan.latency).await?;
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
    latency::write_plots(&results.latency, &folder)?;
    let report = text::report(&plan, &results);
    fs::write(folder.join("report.md"), &report)?;
    println!(
        "{report}\n== report: {}: report.md, report.json, *.svg",
        folder.display()
    );
    if options.book {
        write_page(&SECTION, &text::page(&plan, &results))?;
        fs::copy(folder.join(plot::MAIN), figures().join(plot::MAIN))?;
    }
    Ok(())
}

/// Returns when and how this run measures.
pub(crate) fn conditions() -> String {
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
    format!(
        "Measured on {} by `cargo xtask bench {}`: Redis {}, {}, Node {}, {cores} cores.",
        printed("date", "+%Y-%m-%d"),
        args.join(" "),
        server.unwrap_or("of unknown version"),
        printed("rustc", "--version"),
        printed("node", "--version"),
    )
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
        Self {
            conditions: conditions(),
            rounds: rounds(3, 9),
            warm_up_millis: pick(300, 1_000),
            pairs_millis: pick(150, 300),
            latency: latency::Size {
                rounds: rounds(1, 5),
                length: Duration::from_secs(1),
            },
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

/// Writes a section of the page.
pub(crate) fn write_page(section: &Section, text: &str) -> Result<()> {
    let path = root().join(PAGE);
    fs::create_dir_all(figures())?;
    fs::write(&path, section.filled(&fs::read_to_string(&path)?, text)?)?;
    println!("== written into {PAGE} and {}", figures().display());
    Ok(())
}

/// Returns the folder of the page's plots.
pub(crate) fn figures() -> PathBuf {
    root().join(PAGE).with_file_name(FIGURES)
}

impl Section {
    /// Returns the page with another text between the marks.
    fn filled(&self, page: &str, text: &str) -> Result<String> {
        let Self { begin, end } = self;
        let missing = || format!("{PAGE} has no lines `{begin}` and `{end}`");
        let (before, rest) = page.split_once(begin).ok_or_else(missing)?;
        let (_, after) = rest.split_once(end).ok_or_else(missing)?;
        Ok(format!("{before}{begin}\n{}\n{end}{after}", text.trim()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{FIGURES, PAGE, SECTION, figures, plot};
    use crate::languages::root;
    use crate::latency;

    #[test]
    fn replaces_what_is_between_the_marks_and_nothing_else() {
        let (begin, end) = (SECTION.begin, SECTION.end);
        let page = format!("one\n{begin}\nold\n{end}\ntwo\n");
        let new = SECTION.filled(&page, "new\n").expect("it has the marks");
        assert_eq!(new, format!("one\n{begin}\nnew\n{end}\ntwo\n"));
        assert!(SECTION.filled("no marks", "new").is_err());
    }

    /// Catches a page that was moved: the report would fail only after an hour of measuring.
    #[test]
    fn the_page_has_the_marks_and_the_plots() {
        let text = fs::read_to_string(root().join(PAGE)).expect("the page is there");
        for section in [&SECTION, &latency::SECTION] {
            assert!(section.filled(&text, "new").is_ok());
        }
        for plot in [plot::MAIN, "latency-rust.svg", "latency-node.svg"] {
            assert!(text.contains(&format!("({FIGURES}{plot})")), "{plot}");
            assert!(figures().join(plot).is_file(), "{plot}");
        }
    }
}
