//! The tables of the book's page about mutants.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::list::Mutant;
use super::{Outcome, Row};
use crate::markdown;
use crate::run::root;

/// The page, relative to the root of the repository.
const PAGE: &str = "docs/book/src/mutants.md";

/// The start of a row about a mutant that no test notices.
const NOTHING: &str = "nothing: ";

/// Writes what noticed each mutant into the page. Mutants that did not run now keep their rows.
pub(super) fn write(all: &[Mutant], rows: &[Row<'_>]) -> Result<()> {
    let path = root().join(PAGE);
    let mut page = fs::read_to_string(&path).context(PAGE)?;
    let mut results = results(&page);
    for row in rows {
        let by = match (&row.outcome, &row.mutant.survives) {
            (Outcome::Caught(by), _) => by.clone(),
            (_, reason) => format!("{NOTHING}{}", reason.as_deref().unwrap_or_default()),
        };
        let seconds = Some(row.seconds);
        results.insert(row.mutant.name.clone(), Noticed { by, seconds });
    }
    markdown::fill(&mut page, "mutants by suite", &by_suite(all, &results)?).context(PAGE)?;
    markdown::fill(&mut page, "mutants", &each(all, &results)?).context(PAGE)?;
    fs::write(&path, page)?;
    println!("== mutants: {PAGE} is up to date now");
    Ok(())
}

/// The results by the mutant's name.
type Results = BTreeMap<String, Noticed>;

struct Noticed {
    /// The first test that failed, or why no test does.
    by: String,
    /// The time of the build and the suite, if it was recorded.
    seconds: Option<u64>,
}

/// Returns the results that the page has.
fn results(page: &str) -> Results {
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let &["", _, name, _, by, seconds, ""] = &cells[..] else {
            return None;
        };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        let (by, seconds) = (by.to_owned(), seconds.parse().ok());
        Some((name.to_owned(), Noticed { by, seconds }))
    });
    rows.collect()
}

/// Returns the table of each mutant that ran.
fn each(all: &[Mutant], results: &Results) -> Result<String> {
    let mut table =
        "| list | mutant | broken | noticed by | seconds |\n|---|---|---|---|--:|\n".to_owned();
    for mutant in all {
        if let Some(Noticed { by, seconds }) = results.get(&mutant.name) {
            let seconds = seconds
                .map(|seconds| seconds.to_string())
                .unwrap_or_default();
            let Mutant {
                area, name, breaks, ..
            } = mutant;
            writeln!(table, "| {area} | `{name}` | {breaks} | {by} | {seconds} |")?;
        }
    }
    Ok(table)
}

/// Returns the table of how many mutants each suite noticed, of the suites that ran.
fn by_suite(all: &[Mutant], results: &Results) -> Result<String> {
    let mut table =
        "| list | suite | mutants | ran | caught | seconds |\n|---|---|--:|--:|--:|--:|\n"
            .to_owned();
    let suites = all.iter().map(|mutant| (&mutant.area, &mutant.suite));
    for (area, suite) in suites.collect::<BTreeSet<_>>() {
        let of_suite = all
            .iter()
            .filter(|mutant| (&mutant.area, &mutant.suite) == (area, suite));
        let ran = of_suite
            .clone()
            .filter_map(|mutant| results.get(&mutant.name));
        let caught = ran
            .clone()
            .filter(|noticed| !noticed.by.starts_with(NOTHING));
        let seconds: u64 = ran.clone().filter_map(|noticed| noticed.seconds).sum();
        let (all, ran, caught) = (of_suite.count(), ran.count(), caught.count());
        if ran == 0 {
            continue;
        }
        let suite = suite.replace('|', "\\|");
        writeln!(
            table,
            "| {area} | `{suite}` | {all} | {ran} | {caught} | {seconds} |"
        )?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches rows that a run of other mutants loses.
    #[test]
    fn what_the_page_has_is_read_as_it_was_written() {
        let mutant = |name: &str| Mutant::example("engine", name, "cargo test");
        let all = [mutant("one"), mutant("two"), mutant("three")];
        let noticed = |by: &str, seconds| Noticed {
            by: by.to_owned(),
            seconds,
        };
        let ran = [
            ("one", noticed("`a::b`", Some(3))),
            ("two", noticed("nothing: no reason", None)),
        ];
        let ran = ran.map(|(name, noticed)| (name.to_owned(), noticed));
        let table = each(&all, &ran.into()).expect("a text takes all");
        let again = each(&all, &results(&table)).expect("a text takes all");
        assert_eq!(again, table);
        let suites = by_suite(&all, &results(&table)).expect("a text takes all");
        assert!(
            suites.ends_with("| engine | `cargo test` | 3 | 2 | 1 | 3 |\n"),
            "{suites}"
        );
    }
}
