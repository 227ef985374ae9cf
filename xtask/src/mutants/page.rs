//! The table of the book's page about mutants.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::Outcome;
use super::list::Mutant;
use crate::markdown;
use crate::run::root;

/// The page, relative to the root of the repository.
const PAGE: &str = "docs/book/src/mutants.md";

/// Writes what noticed each mutant into the page.
pub(super) fn write(rows: &[(&Mutant, Outcome)]) -> Result<()> {
    let path = root().join(PAGE);
    let mut page = fs::read_to_string(&path).context(PAGE)?;
    let mut table = "| where | broken | noticed by |\n|---|---|---|\n".to_owned();
    for (mutant, outcome) in rows {
        let noticed = match (outcome, &mutant.survives) {
            (Outcome::Caught(by), _) => by.clone(),
            (_, reason) => format!("nothing: {}", reason.as_deref().unwrap_or_default()),
        };
        writeln!(table, "| {} | {} | {noticed} |", mutant.area, mutant.breaks)?;
    }
    markdown::fill(&mut page, "mutants", &table).context(PAGE)?;
    fs::write(&path, page)?;
    println!("== mutants: {PAGE} is up to date now");
    Ok(())
}
