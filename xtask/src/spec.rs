//! `cargo xtask spec`: checks the TLA+ specifications in `spec/` with TLC, and that TLC finds the faults of their
//! negative controls.

mod instances;
mod page;
mod tlc;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::instances::{INSTANCES, Instance, Length};
use self::tlc::Outcome;
use crate::setup::Need;

/// The options of `cargo xtask spec`.
#[derive(Args)]
pub(crate) struct Options {
    /// Check the large instances instead, one after the other, which takes minutes.
    #[arg(long)]
    large: bool,
    /// Leave out the instances that take longest, as `cargo xtask test` does, and compare no figures with the book.
    #[arg(long, conflicts_with_all = ["large", "only", "book"])]
    quick: bool,
    /// Run only this instance or control; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Write the figures into the book's page, instead of comparing them with it.
    #[arg(long, conflicts_with = "only")]
    book: bool,
}

/// Runs the chosen instances. Fails if a promise is broken with every protection on, if a control finds nothing or
/// something else, or if the book has other figures.
pub(crate) fn main(options: &Options) -> Result<()> {
    let chosen = chosen(options)?;
    for need in [Need::Java, Need::Tlc] {
        need.ensure()?;
    }
    if chosen.iter().any(|instance| instance.is_of_traces()) {
        tlc::write_traces()?;
    }
    let side_by_side = match thread::available_parallelism() {
        Ok(most) if !options.large => most,
        _ => NonZero::<usize>::MIN,
    };
    let outcomes = run_all(&chosen, side_by_side.get())?;
    if options.only.is_empty() && !options.quick {
        page::update(&outcomes, options.book)?;
    }
    let states: u64 = outcomes.values().map(|outcome| outcome.states).sum();
    println!("== spec: {} instances, {states} states", outcomes.len());
    Ok(())
}

fn chosen(options: &Options) -> Result<Vec<&'static Instance>> {
    let is_known = |name: &&String| INSTANCES.iter().any(|instance| instance.name == **name);
    if let Some(unknown) = options.only.iter().find(|name| !is_known(name)) {
        let names: Vec<_> = INSTANCES.iter().map(|instance| instance.name).collect();
        bail!(
            "there is no instance `{unknown}`; there are: {}",
            names.join(", ")
        );
    }
    let is_chosen = |instance: &&Instance| {
        if options.only.is_empty() {
            match instance.length {
                Length::Seconds => !options.large,
                Length::Slow => !options.large && !options.quick,
                Length::Large => options.large,
            }
        } else {
            options.only.iter().any(|name| name == instance.name)
        }
    };
    Ok(INSTANCES.iter().filter(is_chosen).collect())
}

/// Runs instances, this many at a time, in their order. Returns the outcome of each by its name.
fn run_all(
    instances: &[&'static Instance],
    side_by_side: usize,
) -> Result<BTreeMap<&'static str, Outcome>> {
    let left = Mutex::new(instances.iter());
    let next = || {
        let mut left = left.lock().ok()?;
        left.next()
    };
    let work = || {
        let mut done = Vec::new();
        while let Some(instance) = next() {
            done.push((instance.name, run(instance)));
        }
        done
    };
    let done: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..side_by_side).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
        ended.flatten().flatten().collect()
    });
    let mut outcomes = BTreeMap::new();
    let mut failed = Vec::new();
    for (name, result) in done {
        match result {
            Ok(outcome) => {
                outcomes.insert(name, outcome);
            }
            Err(error) => failed.push(format!("{name}: {error:#}")),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    ensure!(outcomes.len() == instances.len(), "an instance was not run");
    Ok(outcomes)
}

/// Runs one instance and prints its result.
fn run(instance: &Instance) -> Result<Outcome> {
    let (outcome, seconds) = tlc::run(instance)?;
    let report = judge(instance, &outcome);
    let of = format!("{} {}", instance.module, instance.name);
    match &report {
        Ok(report) => println!("== spec: {of}: {report} ({seconds} s)"),
        Err(error) => println!("== spec: {of}: FAILED: {error:#}"),
    }
    report.map(|_| outcome)
}

/// Returns the report of an outcome, or an error if it is not the expected one.
fn judge(instance: &Instance, outcome: &Outcome) -> Result<String> {
    let output = || format!("the output is in {}", tlc::output_of(instance).display());
    match (instance.breaks, &outcome.violated) {
        (None, None) => {
            let depth = outcome.depth.with_context(output)?;
            Ok(format!(
                "no violation in {} states, depth {depth}",
                outcome.states
            ))
        }
        (None, Some(found)) => bail!(
            "{found} is violated in {} steps; {}",
            outcome.steps,
            output()
        ),
        (Some(expected), Some(found)) if expected == found => Ok(format!(
            "{found} is violated in {} steps, as expected",
            outcome.steps
        )),
        (Some(expected), Some(found)) => bail!(
            "{found} is violated, and {expected} should be; {}",
            output()
        ),
        (Some(expected), None) => bail!(
            "the control found nothing, and {expected} should be violated; {}",
            output()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(violated: Option<&str>, depth: Option<u64>) -> Outcome {
        Outcome {
            violated: violated.map(str::to_owned),
            states: 9,
            depth,
            steps: 3,
        }
    }

    fn instance(breaks: Option<&'static str>) -> Instance {
        Instance {
            breaks,
            ..INSTANCES[0]
        }
    }

    /// Catches a control that passes although TLC found nothing, or something else.
    #[test]
    fn only_the_expected_violation_passes() {
        let control = instance(Some("Exclusion"));
        assert!(judge(&control, &outcome(Some("Exclusion"), None)).is_ok());
        assert!(judge(&control, &outcome(Some("Order"), None)).is_err());
        assert!(judge(&control, &outcome(None, Some(4))).is_err());
        let positive = instance(None);
        assert!(judge(&positive, &outcome(None, Some(4))).is_ok());
        assert!(judge(&positive, &outcome(Some("Exclusion"), None)).is_err());
        assert!(
            judge(&positive, &outcome(None, None)).is_err(),
            "the search did not end"
        );
    }
}
