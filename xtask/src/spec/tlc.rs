//! Runs TLC and reads its output.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::instances::Instance;
use crate::run::{Cmd, root, target};
use crate::setup::TLC;

/// The specifications, relative to the root of the repository.
const FOLDER: &str = "spec";

/// Builds what the tests of the workspace have built already.
const WRITE_TRACES: &str = "cargo test --workspace --exclude xtask --locked --quiet --test=search -- \
                            --exact traces::write --ignored";

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The invariant that is violated, if any.
    pub(super) violated: Option<String>,
    /// The number of distinct states found.
    pub(super) states: u64,
    /// The depth of the graph, if it was searched completely.
    pub(super) depth: Option<u64>,
    /// The number of steps of the counterexample; no other one is shorter.
    pub(super) steps: usize,
}

/// Runs one instance. Returns its outcome, and how many seconds that took.
pub(super) fn run(instance: &Instance) -> Result<(Outcome, u64)> {
    let folder = folder_of(instance);
    fs::create_dir_all(&folder)?;
    let traces = folder.join("TraceData.tla");
    ensure!(
        traces.exists() || !instance.is_of_traces(),
        "{} was not written",
        traces.display()
    );
    let base = root().join(FOLDER).join(format!("{}.cfg", instance.module));
    let base = fs::read_to_string(&base).with_context(|| base.display().to_string())?;
    let config = folder.join(format!("{}.cfg", instance.name));
    fs::write(&config, configured(&base, instance)?)?;
    // In seconds, optimising the code costs more than it saves.
    let options: &[_] = if instance.is_large() {
        &["-Xmx4g"]
    } else {
        &["-Xmx1g", "-XX:TieredStopAtLevel=1"]
    };
    let jar = root().join(TLC);
    let (config, states, module) = (
        config.to_string_lossy(),
        folder.join("states"),
        format!("{}.tla", instance.module),
    );
    let java = Cmd::line("java -XX:+UseSerialGC").args(options.iter().copied());
    let java = java.args([
        // TLC unpacks its modules there, and finds the traces.
        &format!("-Djava.io.tmpdir={}", folder.display()),
        &format!("-DTLA-Library={}", folder.display()),
        "-cp",
        &jar.to_string_lossy(),
    ]);
    // One worker makes the search breadth-first, so a counterexample is as short as possible.
    let tlc = java.args("tlc2.TLC -workers 1 -fp 0 -deadlock -nowarning".split(' '));
    let tlc = tlc.args([
        "-metadir",
        &states.to_string_lossy(),
        "-config",
        &config,
        &module,
    ]);
    let begun = Instant::now();
    let mut output = String::new();
    // It exits with another code than 0 if it finds a violation.
    let ended = tlc.at(FOLDER).run_and_read(|line| output.push_str(line));
    fs::write(output_of(instance), &output)?;
    let _ = fs::remove_dir_all(&states);
    let outcome = read(&output);
    if outcome.violated.is_none() {
        ended.with_context(|| tail(&output))?;
    }
    ensure!(
        outcome.violated.is_some() || outcome.depth.is_some(),
        "TLC reported neither a violation nor the end of its search:\n{}",
        tail(&output)
    );
    Ok((outcome, begun.elapsed().as_secs()))
}

/// Writes the modules with the traces of all instances that have any.
pub(super) fn write_traces() -> Result<()> {
    Cmd::line(WRITE_TRACES)
        .with_env("LEASEHOLD_TRACES_TO", &results().to_string_lossy())
        .read()?;
    Ok(())
}

/// Returns the folder with a folder for each instance.
fn results() -> PathBuf {
    target().join("spec")
}

fn folder_of(instance: &Instance) -> PathBuf {
    results().join(instance.name)
}

/// Returns the file with TLC's output.
pub(super) fn output_of(instance: &Instance) -> PathBuf {
    folder_of(instance).join("output.txt")
}

/// Returns the configuration of an instance: the module's, with other constants and without some invariants.
fn configured(base: &str, instance: &Instance) -> Result<String> {
    let mut missing = instance
        .with
        .split_whitespace()
        .map(parts)
        .collect::<Result<Vec<_>>>()?;
    let is_checked = |name: &&str| {
        !instance
            .unless
            .split_whitespace()
            .any(|other| other == *name)
    };
    let mut lines = Vec::new();
    for line in base.lines() {
        let constant = line.trim().split(" = ").next().unwrap_or_default();
        if let Some(at) = missing.iter().position(|(name, _)| *name == constant) {
            let (name, value) = missing.remove(at);
            lines.push(format!("    {name} = {value}"));
        } else if let Some(invariants) = line.strip_prefix("INVARIANTS ") {
            let checked: Vec<_> = invariants.split(' ').filter(is_checked).collect();
            lines.push(format!("INVARIANTS {}", checked.join(" ")));
        } else {
            lines.push(line.to_owned());
        }
    }
    ensure!(
        missing.is_empty(),
        "{}.cfg has no constant {}",
        instance.module,
        missing[0].0
    );
    Ok(lines.join("\n") + "\n")
}

fn parts(change: &str) -> Result<(&str, &str)> {
    let parts = change.split_once('=');
    parts.with_context(|| format!("`{change}` is no constant with its value"))
}

/// Reads TLC's output.
fn read(output: &str) -> Outcome {
    let violated = output.lines().find_map(|line| {
        let rest = line.strip_prefix("Error: Invariant ")?;
        Some(rest.strip_suffix(" is violated.")?.to_owned())
    });
    let number = |before: &str, after: &str| {
        let line = output.lines().rev().find(|line| line.contains(after))?;
        let (_, rest) = line.rsplit_once(before)?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    let is_complete = output.contains("Model checking completed. No error has been found.");
    let depth = number(
        "search is ",
        "The depth of the complete state graph search is",
    );
    let states = output
        .lines()
        .filter(|line| line.starts_with("State "))
        .count();
    Outcome {
        states: number("generated, ", " distinct states found, ").unwrap_or(0),
        depth: depth.filter(|_| is_complete),
        // The first state is the initial one.
        steps: if violated.is_some() {
            states.saturating_sub(1)
        } else {
            0
        },
        violated,
    }
}

fn tail(output: &str) -> String {
    let lines: Vec<_> = output.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::instances::INSTANCES;

    #[test]
    fn a_completed_search_is_read() {
        let output = "Model checking completed. No error has been found.\n\
                      Progress(3) at 12: 9 states generated, 7 distinct states found, 2 states left on queue.\n\
                      197836 states generated, 71439 distinct states found, 0 states left on queue.\n\
                      The depth of the complete state graph search is 19.\n";
        let expected = Outcome {
            violated: None,
            states: 71_439,
            depth: Some(19),
            steps: 0,
        };
        assert_eq!(read(output), expected);
    }

    #[test]
    fn a_violation_is_read() {
        let output = "Error: Invariant Exclusion is violated.\nError: The behavior up to this point is:\n\
                      State 1: <Initial predicate>\n/\\ time = 1\n\nState 2: <Ask line 3>\n\
                      16 states generated, 12 distinct states found, 5 states left on queue.\n\
                      The depth of the complete state graph search is 2.\n";
        let expected = Outcome {
            violated: Some("Exclusion".to_owned()),
            states: 12,
            depth: None,
            steps: 1,
        };
        assert_eq!(read(output), expected);
    }

    /// Catches a search that was interrupted and counts as complete.
    #[test]
    fn an_interrupted_search_has_no_depth() {
        assert_eq!(
            read("Progress(3)\njava.lang.OutOfMemoryError\n").depth,
            None
        );
    }

    /// Catches a misspelled constant, which would leave a control without its fault.
    #[test]
    fn every_instance_has_a_configuration() {
        for instance in INSTANCES {
            let base = root().join(FOLDER).join(format!("{}.cfg", instance.module));
            let base = fs::read_to_string(base).expect("each module has a configuration");
            let text = configured(&base, instance).expect("its constants exist");
            assert!(text.contains("\nINVARIANTS "), "{}", instance.name);
            let unknown = Instance {
                with: "Unknown=1",
                ..*instance
            };
            assert!(configured(&base, &unknown).is_err());
        }
    }
}
