//! `cargo xtask costs`: what an operation costs, in numbers that repeat, against those that were written
//! down: no figure may have risen by more than a tenth.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::run::{Cmd, in_release, root};
use crate::setup::Need;

/// The figures that were written down, seen from the root of the repository.
const BASELINE: &str = "tests/costs/baseline.json";
/// By how much one may rise. They repeat to about 1 %.
const MOST_RISE: f64 = 0.10;

#[derive(Args)]
pub(crate) struct Options {
    /// Write the figures down, for later runs to be compared with.
    #[arg(long)]
    write: bool,
}

/// Each by its name.
type Figures = BTreeMap<String, f64>;

/// Measures, and compares or writes.
pub(crate) fn main(options: &Options) -> Result<()> {
    Need::Redis.ensure()?;
    Need::Valgrind.ensure()?;
    let measured = measure()?;
    let path = root().join(BASELINE);
    if options.write {
        let rounded = measured
            .into_iter()
            .map(|(name, figure)| (name, round(figure)));
        let text = serde_json::to_string_pretty(&rounded.collect::<Figures>())?;
        fs::write(&path, text + "\n").with_context(|| format!("writing {BASELINE}"))?;
        println!("== costs: written to {BASELINE}");
        return Ok(());
    }
    let baseline = fs::read(&path).with_context(|| format!("reading {BASELINE}"))?;
    let baseline = serde_json::from_slice(&baseline).with_context(|| format!("in {BASELINE}"))?;
    let (lines, risen) = compare(&baseline, &measured);
    for line in lines {
        println!("{line}");
    }
    ensure!(
        risen.is_empty(),
        "more than {:.0} % above {BASELINE}, or not in both: {}. If it has to be, write the new figures down \
         with `cargo xtask costs --write` and commit them with the reason",
        MOST_RISE * 100.0,
        risen.join("; ")
    );
    Ok(())
}

const PROGRAM: &str = "leasehold-costs";

fn measure() -> Result<Figures> {
    Cmd::cargo(&in_release("build", PROGRAM, &[])).run()?;
    let printed = Cmd::cargo(&in_release("run", PROGRAM, &[])).output()?;
    serde_json::from_str(&printed).context("the figures are not JSON")
}

/// A line for each figure, and the names of those that fail.
fn compare(baseline: &Figures, measured: &Figures) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    let names: Vec<_> = baseline.keys().chain(measured.keys()).collect();
    let width = names
        .iter()
        .map(|name| name.len())
        .max()
        .unwrap_or_default();
    lines.push(format!("{:width$}  {:>10}  {:>10}", "", "written", "now"));
    for (name, &figure) in measured {
        let was = baseline.get(name).copied();
        let is_wrong = !was.is_some_and(|was| figure <= was * (1.0 + MOST_RISE));
        let change = match was {
            Some(was) => format!("{:+.1} %", (figure / was - 1.0) * 100.0),
            None => "is new".to_owned(),
        };
        let was = was.map_or("-".to_owned(), show);
        let mark = if is_wrong { "  <== FAILS" } else { "" };
        let now = show(figure);
        lines.push(format!(
            "{name:width$}  {was:>10}  {now:>10}  {change:>8}{mark}"
        ));
        if is_wrong {
            failed.push(format!("{name} ({change})"));
        }
    }
    for name in baseline.keys().filter(|name| !measured.contains_key(*name)) {
        lines.push(format!("{name:width$}  was not measured  <== FAILS"));
        failed.push(format!("{name} (was not measured)"));
    }
    (lines, failed)
}

/// To four digits.
fn round(figure: f64) -> f64 {
    show(figure).parse().unwrap_or(figure)
}

fn show(figure: f64) -> String {
    match figure {
        1_000.0.. => format!("{figure:.0}"),
        100.0.. => format!("{figure:.1}"),
        10.0.. => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{BASELINE, Figures, compare, root};

    fn figures(all: &[(&str, f64)]) -> Figures {
        all.iter()
            .map(|(name, figure)| ((*name).to_owned(), *figure))
            .collect()
    }

    fn failed(baseline: &[(&str, f64)], measured: &[(&str, f64)]) -> Vec<String> {
        compare(&figures(baseline), &figures(measured)).1
    }

    /// The control of the gate: what has risen too much does not pass, and what has not does.
    #[test]
    fn a_figure_that_has_risen_by_more_than_a_tenth_fails() {
        let baseline = [("a", 100.0), ("b", 2.0)];
        assert_eq!(
            failed(&baseline, &[("a", 111.0), ("b", 2.0)]),
            ["a (+11.0 %)"]
        );
        assert_eq!(
            failed(&baseline, &[("a", 100.0), ("b", 2.22)]),
            ["b (+11.0 %)"]
        );
        assert!(failed(&baseline, &[("a", 109.0), ("b", 2.0)]).is_empty());
        assert!(failed(&baseline, &[("a", 50.0), ("b", 1.0)]).is_empty());
    }

    /// So that none is lost by a change of its name.
    #[test]
    fn a_figure_that_is_not_in_both_fails() {
        let (one, both) = ([("a", 1.0)], [("a", 1.0), ("b", 1.0)]);
        assert_eq!(failed(&one, &both), ["b (is new)"]);
        assert_eq!(failed(&both, &one), ["b (was not measured)"]);
    }

    #[test]
    fn what_is_no_number_fails() {
        assert_eq!(failed(&[("a", 1.0)], &[("a", f64::NAN)]).len(), 1);
        assert_eq!(failed(&[("a", 0.0)], &[("a", 1.0)]).len(), 1);
    }

    /// What was written down is passed by itself, and by nothing that is 11 % dearer in any figure.
    #[test]
    fn each_figure_that_was_written_down_can_fail() {
        let baseline = std::fs::read(root().join(BASELINE)).expect("the baseline is there");
        let baseline: Figures = serde_json::from_slice(&baseline).expect("it has figures");
        assert!(baseline.len() > 10);
        assert!(compare(&baseline, &baseline).1.is_empty());
        for name in baseline.keys() {
            let mut dearer = baseline.clone();
            dearer
                .entry(name.clone())
                .and_modify(|figure| *figure *= 1.11);
            assert_eq!(compare(&baseline, &dearer).1.len(), 1, "{name}");
        }
    }
}
