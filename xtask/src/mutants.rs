//! `cargo xtask mutants`: breaks the code in small ways, and checks that a test notices.

mod list;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use clap::Args;

use self::list::Mutant;
use crate::npm;
use crate::run::{Cmd, root, target};

/// The longest time of a suite on the unbroken copy in seconds.
const LIMIT: u64 = 1_200;

/// The longest time of a suite on a mutant, in times of the suite on the unbroken copy, and at least that
/// many seconds. A suite that hangs has noticed the mutant.
const PATIENCE: (u64, u64) = (3, 240);

/// Settings of cargo for the copy.
const QUICK_BUILDS: &str = "
[profile.dev.package.leasehold-engine]
opt-level = 0
";

/// The options of `cargo xtask mutants`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print the mutants, one per line, and run nothing.
    #[arg(long)]
    list: bool,
    /// Run only this mutant, or all of this file of tests/mutants; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Write what noticed each mutant into the book's page. With `--only`, other mutants keep their rows.
    #[arg(long)]
    book: bool,
}

/// The result of a suite on a mutant.
enum Outcome {
    /// A test failed. Its name, if the output shows one.
    Caught(String),
    Survived,
    NotCompiled,
}

/// A mutant that a suite ran on, as expected.
struct Row<'a> {
    mutant: &'a Mutant,
    outcome: Outcome,
    seconds: u64,
}

/// Runs the suite of each chosen mutant. Fails if a mutant survives without a reason, or is caught although a reason
/// says that it survives.
pub(crate) fn main(options: &Options) -> Result<()> {
    let all = list::all()?;
    let chosen = chosen(&all, &options.only)?;
    if options.list {
        for mutant in &chosen {
            println!("{}: {}: {}", mutant.area, mutant.name, mutant.breaks);
        }
        return Ok(());
    }
    let tree = tree()?;
    for mutant in &chosen {
        mutant.apply(&fs::read_to_string(tree.join(&mutant.file))?)?;
    }
    let usual = check_suites(&chosen)?;
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for mutant in &chosen {
        let began = Instant::now();
        let path = tree.join(&mutant.file);
        let text = fs::read_to_string(&path)?;
        fs::write(&path, mutant.apply(&text)?)?;
        let limit = (usual[&mutant.suite] * PATIENCE.0).max(PATIENCE.1);
        let outcome = run(&mutant.suite, limit);
        fs::write(&path, text)?;
        let seconds = began.elapsed().as_secs();
        let said = match (&outcome, &mutant.survives) {
            (Outcome::Caught(by), None) => Ok(format!("caught by {by}")),
            (Outcome::Survived, Some(reason)) => Ok(format!("survives: {reason}")),
            (Outcome::Caught(by), Some(_)) => Err(format!(
                "caught by {by}, although the list says that it survives"
            )),
            (Outcome::Survived, None) => Err("SURVIVED".to_owned()),
            (Outcome::NotCompiled, _) => Err("DOES NOT COMPILE".to_owned()),
        };
        let (Ok(text) | Err(text)) = &said;
        println!("== mutants: {}: {text} ({seconds} s)", mutant.name);
        match said {
            Ok(_) => rows.push(Row {
                mutant,
                outcome,
                seconds,
            }),
            Err(wrong) => faults.push(format!("{}: {wrong}", mutant.name)),
        }
    }
    println!(
        "== mutants: {} tried, {} not as expected",
        chosen.len(),
        faults.len()
    );
    if options.book {
        page::write(&all, &rows)?;
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn chosen<'a>(all: &'a [Mutant], only: &[String]) -> Result<Vec<&'a Mutant>> {
    let is = |mutant: &Mutant, name: &String| *name == mutant.name || *name == mutant.area;
    for name in only {
        if !all.iter().any(|mutant| is(mutant, name)) {
            bail!("there is no mutant or file `{name}`; `cargo xtask mutants --list` prints all");
        }
    }
    let is_chosen = |mutant: &Mutant| only.is_empty() || only.iter().any(|name| is(mutant, name));
    Ok(all.iter().filter(|mutant| is_chosen(mutant)).collect())
}

/// Makes a copy of the repository, as git knows it, in which files may be broken. Returns its folder.
fn tree() -> Result<PathBuf> {
    let folder = target().join("mutants");
    let (tree, archive) = (folder.join("tree"), folder.join("tree.tar"));
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    fs::create_dir_all(&tree)?;
    // A commit of what is tracked and changed; nothing if nothing is changed.
    let changed = Cmd::line("git stash create").read()?;
    let commit = Some(changed.trim()).filter(|commit| !commit.is_empty());
    let archived = Cmd::line("git archive --format=tar -o").args([archive.display().to_string()]);
    archived.args([commit.unwrap_or("HEAD")]).run()?;
    // With the times of now (-m), since cargo does not build anew what is older than its last build.
    let unpacked = Cmd::line("tar -xmf").args([archive.display().to_string()]);
    unpacked.args(["-C", &tree.display().to_string()]).run()?;
    // What the tests of the npm package need and git does not know.
    for made in ["node_modules", "src/generated", "dist"] {
        let from = root().join(npm::FOLDER).join(made);
        if from.exists() {
            let to = tree.join(npm::FOLDER).join(made);
            let paths = [from, to].map(|path| path.display().to_string());
            Cmd::line("cp -a").args(paths).run()?;
        }
    }
    // What a mutant changes builds in seconds, and its suite runs once.
    let config = tree.join(".cargo/config.toml");
    let settings = fs::read_to_string(&config)? + QUICK_BUILDS;
    fs::write(config, settings)?;
    Ok(tree)
}

/// Runs each suite on the unbroken copy, so that no failure of another cause counts as a catch. Returns the
/// seconds that each takes.
fn check_suites<'a>(mutants: &[&'a Mutant]) -> Result<BTreeMap<&'a String, u64>> {
    let mut suites: Vec<_> = mutants.iter().map(|mutant| &mutant.suite).collect();
    suites.sort();
    suites.dedup();
    let mut usual = BTreeMap::new();
    for suite in suites {
        let began = Instant::now();
        ensure!(
            matches!(run(suite, LIMIT), Outcome::Survived),
            "a suite fails without a mutant: `{suite}`"
        );
        let seconds = began.elapsed().as_secs();
        println!("== mutants: `{suite}` passes without a mutant ({seconds} s)");
        usual.insert(suite, seconds);
    }
    Ok(usual)
}

/// Runs a suite for at most so many seconds.
fn run(suite: &str, limit: u64) -> Outcome {
    let build = target().join("mutants/build");
    let tree = target().join("mutants/tree");
    let command =
        Cmd::line("timeout --kill-after=10").args([&limit.to_string(), "sh", "-c", suite]);
    let command = command.with_env("CARGO_TARGET_DIR", &build.display().to_string());
    let command = command.with_env("CARGO_INCREMENTAL", "1");
    let mut failed = None;
    let mut compiles = true;
    // A test file that reaches its time limit is named by its path.
    let folder = format!("{}/", tree.display());
    let ended = command
        .at(&tree.display().to_string())
        .run_and_read(|line| {
            compiles &= !line.starts_with("error: could not compile");
            failed = failed
                .take()
                .or_else(|| failed_test(&line.replace(&folder, "")));
        });
    match ended {
        Ok(()) => Outcome::Survived,
        Err(_) if !compiles => Outcome::NotCompiled,
        Err(error) => Outcome::Caught(failed.unwrap_or_else(|| format!("the end: {error}"))),
    }
}

/// Returns the name of the test that a line of output says has failed, from Rust's harness or from Node's.
fn failed_test(line: &str) -> Option<String> {
    let line = line.trim();
    let rust = line
        .strip_prefix("test ")
        .and_then(|rest| rest.strip_suffix(" ... FAILED"));
    let node = line
        .strip_prefix("not ok ")
        .and_then(|rest| rest.split_once(" - "));
    let name = rust.or(node.map(|(_, name)| name))?;
    Some(format!("`{name}`"))
}

#[cfg(test)]
mod tests {
    use super::failed_test;

    #[test]
    fn failed_tests_are_named() {
        let name = |line| failed_test(line);
        assert_eq!(name("test a::b ... FAILED\n").as_deref(), Some("`a::b`"));
        assert_eq!(name("test a::b ... ok\n"), None);
        assert_eq!(
            name("    not ok 3 - it works\n").as_deref(),
            Some("`it works`")
        );
    }
}
