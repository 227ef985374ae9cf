//! `cargo xtask test`: every check and every test.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::counts::Counts;
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
        // The tests of these two are among those of other steps.
        if options.quick {
            QUICK.contains(&step.name)
        } else {
            !["quick", "portable"].contains(&step.name)
        }
    };
    let steps: Vec<&'static Step> = STEPS.iter().chain(more).filter(is_chosen).collect();
    if options.list {
        for step in steps {
            let command = step.with_cmd(|cmd| cmd.to_string());
            println!("{}: {}\n    {command}", step.name, step.what);
        }
        return ExitCode::SUCCESS;
    }
    let mut counts = Counts::default();
    let mut failed = run_all(&steps, options.keep_going, &mut counts);
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

/// Sets up and runs the steps. Returns the names of those that failed.
fn run_all(steps: &[&'static Step], keep_going: bool, counts: &mut Counts) -> Vec<&'static str> {
    // The whole setup comes first, so that a missing requirement is reported at once and not after minutes.
    let missing = set_up(steps, keep_going);
    if !missing.is_empty() && !keep_going {
        return vec!["setup"];
    }
    let (without, steps): (Vec<&Step>, Vec<_>) = steps
        .iter()
        .copied()
        .partition(|step| step.needs.iter().any(|need| missing.contains(need)));
    for step in &without {
        println!("== {}: not run, a requirement is missing", step.name);
    }
    let mut failed: Vec<_> = without.iter().map(|step| step.name).collect();
    failed.extend(schedule::run_all(&steps, keep_going, counts));
    failed
}

/// Installs the requirements of the steps. Returns those that could not be installed.
fn set_up(steps: &[&Step], keep_going: bool) -> Vec<Need> {
    let (mut done, mut missing) = (Vec::new(), Vec::new());
    for &need in steps.iter().flat_map(|step| step.needs) {
        if done.contains(&need) {
            continue;
        }
        done.push(need);
        let start = Instant::now();
        match need.ensure() {
            Ok(found) => println!("== setup: {found}, {:.1} s", start.elapsed().as_secs_f64()),
            Err(error) => {
                println!("== setup: FAILED: {error:#}");
                missing.push(need);
                if !keep_going {
                    break;
                }
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::run_all;
    use crate::counts::Counts;
    use crate::steps::{BARE, Step};

    fn step(name: &'static str, line: &'static str, tests: bool) -> Step {
        Step {
            name,
            line,
            tests,
            ..BARE
        }
    }

    #[test]
    fn a_run_stops_at_the_first_failure_or_keeps_going() {
        let steps = vec![
            step("good", "true", false),
            step("bad", "false", false),
            step("worse", "sh -c 'exit 2'", false),
        ];
        let steps: Vec<&'static Step> = Vec::leak(steps).iter().collect();
        let mut counts = Counts::default();
        assert_eq!(run_all(&steps, false, &mut counts), ["bad"]);
        assert_eq!(run_all(&steps, true, &mut counts), ["bad", "worse"]);
        assert_eq!(counts, Counts::default());
    }

    #[test]
    fn tests_of_failing_steps_are_counted() {
        let line = "sh -c 'echo \"test result: FAILED. 2 passed; 1 failed; 4 ignored\"; exit 101'";
        let steps = vec![step("tests", line, true)];
        let steps: Vec<&'static Step> = Vec::leak(steps).iter().collect();
        let mut counts = Counts::default();
        assert_eq!(run_all(&steps, false, &mut counts), ["tests"]);
        assert_eq!(
            counts,
            Counts {
                passed: 2,
                failed: 1,
                skipped: 4
            }
        );
    }
}
