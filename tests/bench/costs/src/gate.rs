//! The gate: compares the figures with the baseline. No figure may have risen by more than a tenth.

use std::fs;

use crate::{Figures, Result};

/// The file of the recorded figures, in this package's folder.
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.json");
/// The most by which a figure may rise. Figures repeat to about 1 %.
const MOST_RISE: f64 = 0.10;

/// Records the figures for comparison with later runs.
pub(crate) fn write(measured: Figures) -> Result<()> {
    let rounded = measured
        .into_iter()
        .map(|(name, figure)| (name, round(figure)));
    let text = serde_json::to_string_pretty(&rounded.collect::<Figures>())?;
    fs::write(BASELINE, text + "\n")?;
    println!("== costs: written to {BASELINE}");
    Ok(())
}

/// Compares the figures with the recorded ones, and prints both.
pub(crate) fn check(measured: &Figures) -> Result<()> {
    let (lines, failed) = compare(&baseline()?, measured);
    for line in lines {
        println!("{line}");
    }
    if failed.is_empty() {
        return Ok(());
    }
    let what = failed.join("; ");
    let most = MOST_RISE * 100.0;
    Err(format!(
        "more than {most:.0} % above {BASELINE}, or not in both: {what}. If it has to be, write the new figures \
         down with `cargo xtask costs --write` and commit them with the reason"
    )
    .into())
}

fn baseline() -> Result<Figures> {
    let text = fs::read(BASELINE).map_err(|error| format!("reading {BASELINE}: {error}"))?;
    Ok(serde_json::from_slice(&text).map_err(|error| format!("in {BASELINE}: {error}"))?)
}

/// Returns a line for each figure, and the names of those that fail.
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

/// Rounds to four digits.
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
    use super::{baseline, compare};
    use crate::Figures;

    fn figures(all: &[(&str, f64)]) -> Figures {
        all.iter()
            .map(|(name, figure)| ((*name).to_owned(), *figure))
            .collect()
    }

    fn failed(baseline: &[(&str, f64)], measured: &[(&str, f64)]) -> Vec<String> {
        compare(&figures(baseline), &figures(measured)).1
    }

    /// Catches a gate that lets a figure pass that has risen too much, or refuses one that has not.
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

    /// Catches a figure that is lost because its name changes.
    #[test]
    fn a_figure_that_is_not_in_both_fails() {
        let (one, both) = ([("a", 1.0)], [("a", 1.0), ("b", 1.0)]);
        assert_eq!(failed(&one, &both), ["b (is new)"]);
        assert_eq!(failed(&both, &one), ["b (was not measured)"]);
    }

    #[test]
    fn a_figure_that_is_no_number_fails() {
        assert_eq!(failed(&[("a", 1.0)], &[("a", f64::NAN)]).len(), 1);
        assert_eq!(failed(&[("a", 0.0)], &[("a", 1.0)]).len(), 1);
    }

    /// Catches a recorded figure that cannot fail: the baseline passes against itself, and no figure may be
    /// 11 % higher.
    #[test]
    fn each_recorded_figure_can_fail() {
        let baseline = baseline().expect("the baseline has figures");
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
