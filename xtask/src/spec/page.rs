//! The tables of the book's page about the specifications.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, ensure};

use super::instances::{INSTANCES, Instance};
use super::tlc::Outcome;
use crate::markdown;
use crate::run::root;

/// The page, relative to the root of the repository.
const PAGE: &str = "docs/book/src/specification.md";

type Outcomes = BTreeMap<&'static str, Outcome>;

/// Writes the outcomes into the page, or fails if the page has other ones.
pub(super) fn update(outcomes: &Outcomes, write: bool) -> Result<()> {
    let path = root().join(PAGE);
    let mut page = fs::read_to_string(&path).context(PAGE)?;
    for (name, table) in tables(outcomes) {
        markdown::fill(&mut page, &format!("spec {name}"), &table).context(PAGE)?;
    }
    let is_same = page == fs::read_to_string(&path)?;
    if write && !is_same {
        fs::write(&path, page)?;
        println!("== spec: {PAGE} is up to date now");
    }
    ensure!(
        write || is_same,
        "{PAGE} has other figures; write these with: cargo xtask spec --book (after --large also: --large --book)"
    );
    Ok(())
}

/// Returns the tables that these outcomes fill, by the names of their places.
fn tables(outcomes: &Outcomes) -> Vec<(&'static str, String)> {
    let done = || {
        let done = INSTANCES.iter();
        done.filter_map(|instance| Some((instance, outcomes.get(instance.name)?)))
    };
    let all = || done().filter(|(instance, _)| !instance.is_of_traces());
    let searched = |large: bool| {
        all().filter(move |(instance, _)| instance.breaks.is_none() && instance.is_large() == large)
    };
    let mut tables = Vec::new();
    for (name, large) in [("instances", false), ("large", true)] {
        let mut table =
            "| module | instance | what it contains | states | depth |\n|---|---|---|---:|---:|\n"
                .to_owned();
        for (instance, outcome) in searched(large) {
            let Instance {
                module,
                name,
                story,
                ..
            } = instance;
            let (states, depth) = (grouped(outcome.states), outcome.depth.unwrap_or(0));
            let _ = writeln!(
                table,
                "| {module} | `{name}` | {story} | {states} | {depth} |"
            );
        }
        if searched(large).count() > 0 {
            tables.push((name, table));
        }
    }
    for (name, large) in [("controls", false), ("large controls", true)] {
        let mut table = "| module | control | switched off | violated | steps | what happens |\n\
                         |---|---|---|---|---:|---|\n"
            .to_owned();
        let controls = all().filter(|(instance, _)| instance.is_large() == large);
        let mut are_any = false;
        for (instance, outcome) in controls {
            let Some(breaks) = instance.breaks else {
                continue;
            };
            are_any = true;
            let (module, control, story) = (instance.module, instance.name, instance.story);
            let (off, steps) = (instance.switched_off(), outcome.steps);
            let _ = writeln!(
                table,
                "| {module} | `{control}` | {off} | {breaks} | {steps} | {story} |"
            );
        }
        if are_any {
            tables.push((name, table));
        }
    }
    let mut table = "| instance | the code | traces |\n|---|---|---|\n".to_owned();
    let traces: Vec<_> = done()
        .filter(|(instance, _)| instance.is_of_traces())
        .collect();
    for (Instance { name, story, .. }, outcome) in &traces {
        let found = match outcome.violated {
            None => "all are accepted".to_owned(),
            Some(_) => format!("one is refused at event {}", outcome.steps + 1),
        };
        let _ = writeln!(table, "| `{name}` | {story} | {found} |");
    }
    if !traces.is_empty() {
        tables.push(("traces", table));
    }
    tables
}

/// Returns a number with commas between its groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(123_456), "123,456");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
