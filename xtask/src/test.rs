//! `cargo xtask test`: every check and every test.

use std::fs;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::counts::Counts;
use crate::run::target;
use crate::schedule;
use crate::setup::Need;
use crate::steps::{MORE, QUICK, STEPS, Step};

#[derive(Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the command line"
)]
pub(crate) struct Options {
    /// Print the steps and their commands, and run nothing.
    #[arg(long)]
    list: bool,
    /// Run only this step; may be given several times.
    #[arg(
        long,
        value_name = "STEP",
        value_parser = PossibleValuesParser::new(STEPS.iter().chain(MORE).map(|step| step.name)),
    )]
    only: Vec<String>,
    /// Run the further steps, too: sets of features that are rarely broken, the code that measures, and statistics.
    #[arg(long, conflicts_with = "only")]
    all: bool,
    /// Run formatting, lints, unit tests and scenarios alone, which takes a few minutes.
    #[arg(long, conflicts_with_all = ["only", "all"])]
    quick: bool,
    /// Run all the steps even if one fails.
    #[arg(long)]
    keep_going: bool,
}

/// Runs the selected steps. The last line printed is the count of tests.
pub(crate) fn main(options: &Options) -> ExitCode {
    let is_default = options.only.is_empty() && !options.all && !options.quick;
    let more = if is_default { &[] } else { MORE };
    let is_chosen = |step: &&Step| {
        if !options.only.is_empty() {
            return options.only.iter().any(|name| name == step.name);
        }
        if options.quick {
            QUICK.contains(&step.name)
        } else {
            // What these do is among what other steps of all do.
            let repeats = [
                "quick",
                "clippy",
                "clippy-xtask",
                "portable",
                "spec",
                "wasm",
            ];
            !(options.all && repeats.contains(&step.name))
        }
    };
    let steps: Vec<&'static Step> = STEPS.iter().chain(more).filter(is_chosen).collect();
    if options.list {
        for step in steps {
            println!("{}: {}\n    {}", step.name, step.what, step.cmd());
        }
        return ExitCode::SUCCESS;
    }
    let mut counts = Counts::default();
    let env = if options.quick { &[][..] } else { env() };
    let mut failed = schedule::run_all(&steps, env, Need::ensure, options.keep_going, &mut counts);
    if failed.is_empty() && counts.ran() == 0 && steps.iter().any(|step| step.tests) {
        println!("== no test ran");
        failed.push("the run");
    }
    if !failed.is_empty() {
        println!("== failed: {}", failed.join(", "));
    }
    println!("{counts}");
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Returns the environment variables of all steps. A machine that has built nothing yet builds once, and files for
/// incremental builds would take a fifth of that time. A machine that has them keeps them up to date.
fn env() -> &'static [(&'static str, &'static str)] {
    let files = fs::read_dir(target().join("debug/incremental"));
    let mut files = files.into_iter().flatten().flatten();
    if files.any(|file| {
        file.file_name()
            .as_encoded_bytes()
            .starts_with(b"leasehold")
    }) {
        &[]
    } else {
        &[("CARGO_INCREMENTAL", "0")]
    }
}
