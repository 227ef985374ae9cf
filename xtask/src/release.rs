//! `cargo xtask release`: everything that must hold before a version is published.

mod artifacts;
mod manifests;
mod packed;
#[cfg(test)]
mod tests;
mod texts;
mod tools;
mod tree;

use anyhow::{Result, bail, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::run::root;
use tree::Tree;

/// The crates to publish, in the order of their dependencies.
const PUBLISHED: &[&str] = &[
    "leasehold-engine",
    "leasehold",
    "leasehold-observe",
    "leasehold-serve",
    "leasehold-cli",
];

/// The options of `cargo xtask release`.
#[derive(Args)]
pub(crate) struct Mode {
    /// Check everything, and publish nothing.
    #[arg(long)]
    dry_run: bool,
    /// Fail, too, if a check could not run.
    #[arg(long, requires = "dry_run")]
    strict: bool,
    /// Run only this check; may be given several times.
    #[arg(
        long,
        value_name = "CHECK",
        requires = "dry_run",
        value_parser = PossibleValuesParser::new(checks().map(|check| check.name)),
    )]
    only: Vec<String>,
    /// Write what later checks compare with: `public-api.txt` of each library crate, and the list of the npm
    /// package's files.
    #[arg(long, exclusive = true)]
    write: bool,
    /// Build the command for a target and pack it into target/release-artifacts.
    #[arg(long, value_name = "TARGET", exclusive = true)]
    binary: Option<String>,
    /// Publish to a registry; refused outside of the release workflow.
    #[arg(long, value_name = "REGISTRY", exclusive = true)]
    publish: Option<artifacts::Registry>,
}

/// How a check ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It found nothing; the text is a remark, or empty.
    Passed(String),
    /// It found these faults, each with its advice.
    Failed(Vec<String>),
    /// It lacks the tool that the text names.
    NotRun(String),
}

impl From<Vec<String>> for Outcome {
    fn from(faults: Vec<String>) -> Self {
        if faults.is_empty() {
            Self::Passed(String::new())
        } else {
            Self::Failed(faults)
        }
    }
}

/// A named check of the tree.
struct Check {
    name: &'static str,
    what: &'static str,
    run: fn(&Tree) -> Result<Outcome>,
}

impl Check {
    const fn new(
        name: &'static str,
        what: &'static str,
        run: fn(&Tree) -> Result<Outcome>,
    ) -> Self {
        Self { name, what, run }
    }
}

/// The checks that only read files. A unit test runs them on this repository.
const OF_FILES: &[Check] = &[
    Check::new(
        "versions",
        "crates, path dependencies and the npm package agree on their versions",
        manifests::versions,
    ),
    Check::new(
        "publish",
        "exactly the crates to publish may be published",
        manifests::publish,
    ),
    Check::new(
        "metadata",
        "each crate has what its registry page shows",
        manifests::metadata,
    ),
    Check::new(
        "docs.rs",
        "docs.rs builds all features and marks them",
        manifests::docs_rs,
    ),
    Check::new(
        "licenses",
        "each crate has copies of both licenses",
        texts::licenses,
    ),
    Check::new(
        "includes",
        "no crate includes files outside of its package",
        texts::includes,
    ),
    Check::new(
        "placeholders",
        "no other placeholder host is left",
        texts::placeholders,
    ),
    Check::new(
        "links",
        "links of published README files work on the registries",
        texts::links,
    ),
    Check::new(
        "workflows",
        "workflows pin actions and toolchains, and limit their permissions",
        texts::workflows,
    ),
];

/// The other checks. What fails often or fast comes first.
const FURTHER: &[Check] = &[
    Check::new(
        "fields",
        "the publisher has filled in authors, repository and homepage",
        manifests::fields,
    ),
    Check::new(
        "changelog",
        "CHANGELOG.md has an entry for the version",
        texts::changelog,
    ),
    Check::new(
        "toolchain",
        "the compiler is the one that lints are pinned to",
        tools::toolchain,
    ),
    Check::new(
        "rust-version",
        "no dependency asks for a newer Rust than the crates do",
        tools::rust_versions,
    ),
    Check::new(
        "crates",
        "each crate packs, and compiles from its package",
        packed::crates,
    ),
    Check::new(
        "crate-files",
        "each package has the expected files and a small size",
        packed::crate_files,
    ),
    Check::new(
        "npm-files",
        "the npm package has the expected files",
        packed::npm_files,
    ),
    Check::new(
        "docs",
        "the documentation builds as on docs.rs",
        tools::docs,
    ),
    Check::new(
        "public-api",
        "the public API is the committed one",
        tools::public_api,
    ),
    Check::new(
        "semver",
        "the version fits the changes since the last release",
        tools::semver,
    ),
    Check::new(
        "msrv",
        "the crates compile with the oldest Rust that they claim",
        tools::msrv,
    ),
    Check::new("sbom", "bills of materials can be written", artifacts::sbom),
];

/// Does what the options ask for.
pub(crate) fn main(mode: &Mode) -> Result<()> {
    let tree = Tree::read(&root(), PUBLISHED)?;
    if mode.write {
        packed::write_npm_files(&tree)?;
        return tools::write_api(&tree);
    }
    if let Some(target) = &mode.binary {
        return artifacts::binary(&tree, target);
    }
    if let Some(registry) = mode.publish {
        return artifacts::publish(&tree, registry);
    }
    ensure!(
        mode.dry_run,
        "nothing is published from a developer's machine; run `cargo xtask release --dry-run`, then push the tag \
         v{}: the workflow release.yml publishes it",
        tree.version()?
    );
    check(&tree, mode)
}

fn checks() -> impl Iterator<Item = &'static Check> {
    OF_FILES.iter().chain(FURTHER)
}

/// Runs the checks, even after one that failed, and lists what is to be done.
fn check(tree: &Tree, mode: &Mode) -> Result<()> {
    let mut passed = 0;
    let (mut failed, mut not_run) = (Vec::new(), Vec::new());
    let is_chosen =
        |check: &&Check| mode.only.is_empty() || mode.only.iter().any(|name| name == check.name);
    for Check { name, what, run } in checks().filter(is_chosen) {
        println!("== {name}: {what}");
        match run(tree).unwrap_or_else(|error| Outcome::Failed(vec![format!("{error:#}")])) {
            Outcome::Passed(remark) => {
                passed += 1;
                println!("   ok {remark}");
            }
            Outcome::Failed(faults) => {
                println!("   FAILED: {} fault(s)", faults.len());
                failed.push((name, faults));
            }
            Outcome::NotRun(why) => {
                println!("   NOT RUN: {why}");
                not_run.push((name, why));
            }
        }
    }
    println!();
    for (name, why) in &not_run {
        println!("not run: {name}: {why}");
    }
    for (name, faults) in &failed {
        for fault in faults {
            println!("failed: {name}: {fault}");
        }
    }
    println!(
        "release: {passed} checks passed, {} failed, {} not run",
        failed.len(),
        not_run.len()
    );
    if !failed.is_empty() || mode.strict && !not_run.is_empty() {
        bail!("the tree is not ready to be published");
    }
    Ok(())
}
