//! `cargo xtask bench` and `cargo xtask costs`: both run programs of the benchmark workspace.

use anyhow::Result;

use crate::npm;
use crate::package;
use crate::run::Cmd;
use crate::setup::Need;

/// The benchmark workspace, relative to the root of the repository.
pub(crate) const FOLDER: &str = "tests/bench";
const NODE: &str = "tests/bench/node";

/// Runs a benchmark with its options.
pub(crate) fn main(args: &[String]) -> Result<()> {
    let args: Vec<_> = args
        .iter()
        .map(String::as_str)
        .filter(|arg| *arg != "--")
        .collect();
    let asks = args.is_empty() || args.contains(&"--help") || args.contains(&"-h");
    let needs: &[Need] = match args.first() {
        _ if asks => &[],
        Some(&"guards") => &[Need::Redis, Need::Postgres, Need::MariaDb, Need::Venv],
        _ => &[Need::Redis],
    };
    for need in needs {
        need.ensure()?;
    }
    match args.split_first() {
        Some((&"node", options)) => node(options, asks),
        Some((&"guards", _)) => run(
            "--profile release --bin bench -p leasehold-bench --features guards",
            &args,
        ),
        None => run("--profile release --bin bench", &["--help"]),
        Some(_) => run("--profile release --bin bench", &args),
    }
}

/// Counts the cost of operations, and compares it with the recorded figures or records it.
pub(crate) fn costs(write: bool) -> Result<()> {
    Need::Redis.ensure()?;
    Need::Valgrind.ensure()?;
    let options: &[_] = if write { &["--write"] } else { &[] };
    run("--profile costs -p leasehold-costs", options)
}

/// Runs a program with these options.
fn run(which: &str, options: &[&str]) -> Result<()> {
    let run = format!("cargo run --locked --quiet {which} --");
    Cmd::line(&run).args(options).at(FOLDER).run()
}

/// Builds the package as it is shipped, and measures that.
fn node(options: &[&str], asks: bool) -> Result<()> {
    if !asks {
        package::main()?;
        npm::install(NODE)?;
    }
    let main = Cmd::line("node main.mjs").args(options);
    main.at(NODE).run()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::FOLDER;
    use crate::run::root;

    /// Returns all packages in a lock file, each with its version.
    fn locked(folder: &str) -> BTreeSet<(String, String)> {
        let lock = fs::read_to_string(root().join(folder).join("Cargo.lock"));
        let lock = lock.expect("each workspace has a lock file");
        let value =
            |line: &str, key: &str| Some(line.strip_prefix(key)?.trim_matches('"').to_owned());
        let lines: Vec<_> = lock.lines().collect();
        let packages = lines.windows(2);
        let packages = packages
            .filter_map(|pair| Some((value(pair[0], "name = ")?, value(pair[1], "version = ")?)));
        packages.collect()
    }

    /// Catches benchmarks that measure other versions of dependencies than the tests run with.
    #[test]
    fn shared_dependencies_have_the_same_version_in_both_workspaces() {
        let (here, there) = (locked(""), locked(FOLDER));
        let is_here = |name: &str| here.iter().any(|(other, _)| other == name);
        let others: Vec<_> = there
            .difference(&here)
            .filter(|(name, _)| is_here(name))
            .collect();
        assert!(here.len() > 100 && there.len() > 100);
        assert!(
            others.is_empty(),
            "{FOLDER} has other versions of: {others:?}"
        );
    }
}
