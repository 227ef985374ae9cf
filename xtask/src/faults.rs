//! `cargo xtask faults`: real clients on real servers under faults.

use anyhow::Result;

use crate::run::{Cmd, target};
use crate::setup::Need;

/// Builds what the tests of the workspace have built already: the program, and the command `leasehold`.
const BUILD: &str =
    "cargo test --workspace --exclude xtask --locked --no-run --test=faults --test=cli";
const NEEDS: [Need; 4] = [Need::Redis, Need::Node, Need::Faketime, Need::Go];

/// Runs the program of `tests/faults` with its options.
pub(crate) fn main(args: &[String]) -> Result<()> {
    let asks = args.iter().any(|arg| arg == "--help" || arg == "-h");
    if !asks {
        for need in NEEDS {
            need.ensure()?;
        }
        if !crate::run::root()
            .join("bindings/node/dist/index.js")
            .exists()
        {
            crate::package::main()?;
        }
    }
    Cmd::line(BUILD).run()?;
    let program = target().join("debug/leasehold-faults");
    Cmd::new(&program.display().to_string()).args(args).run()
}
