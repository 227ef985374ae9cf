//! `cargo xtask man`: the manual pages of the command `leasehold`.

use anyhow::Result;

use crate::run::{Cmd, target};

/// Writes the pages, and prints their folder.
pub(crate) fn main() -> Result<()> {
    let folder = target().join("man");
    let run = Cmd::line("cargo run --quiet -p leasehold-cli --locked -- man");
    run.args([folder.to_string_lossy()]).run()?;
    println!("== man: {}", folder.display());
    Ok(())
}
