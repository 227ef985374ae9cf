//! `cargo xtask audit`: checks the dependencies with cargo-deny, by `deny.toml`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::run::{Cmd, root};

/// The options of `cargo xtask audit`.
#[derive(Args)]
pub(crate) struct Options {
    /// Fail if the advisories could not be checked: for continuous integration.
    #[arg(long)]
    require_advisories: bool,
}

/// Runs all checks, even after a failed one.
pub(crate) fn main(options: &Options) -> Result<()> {
    ensure!(
        Cmd::line("cargo deny --version").probe().is_some(),
        "cargo-deny is missing; install it with: cargo install --locked cargo-deny"
    );
    let config = fs::read_to_string(root().join("deny.toml")).context("deny.toml")?;
    let checked = run("cargo deny check bans licenses sources").and(control(&config));
    for ignored in config.lines().filter(|line| line.contains("{ id = ")) {
        println!("== advisories: ignored: {}", ignored.trim());
    }
    // The fetch is a command of its own, since the check exits with the same code whether the database could
    // not be fetched or an advisory was found.
    if let Err(error) = run("cargo deny fetch db") {
        println!("== {error:#}");
        println!("== WARNING: advisories: not checked: could not fetch");
        ensure!(
            !options.require_advisories,
            "the advisories were not checked"
        );
        return checked;
    }
    let advisories = run("cargo deny check advisories");
    checked.and(advisories)
}

fn run(line: &str) -> Result<()> {
    println!("== {line}");
    Cmd::line(line).run()
}

/// The negative control, without the network: runs the same commands on a database made here. An ignored
/// advisory must pass, and another one must fail.
fn control(config: &str) -> Result<()> {
    println!("== advisories: control, with a database made here");
    let folder = root().join("target/audit");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let database = folder.join("database");
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is UTF-8");
    let own = format!(
        "[advisories]\ndb-path = {:?}",
        text(&folder.join("fetched"))?
    );
    let file = folder.join("deny.toml");
    advisory(&database, "not-among-the-dependencies", "RUSTSEC-2099-0000")?;
    fs::write(&file, config.replacen("[advisories]", &own, 1))?;
    let (database, file) = (text(&database)?, text(&file)?);
    // With this, git fetches from the folder instead of the address.
    let instead = format!("url.file://{database}.insteadOf");
    let address = "https://github.com/RustSec/advisory-db";
    let deny = Cmd::line("cargo deny --config").args([&file]);
    let fetch = deny.clone().args(["fetch", "db"]);
    let fetch = fetch.with_env("GIT_CONFIG_COUNT", "1");
    let fetch = fetch.with_env("GIT_CONFIG_KEY_0", &instead);
    let fetch = fetch.with_env("GIT_CONFIG_VALUE_0", address);
    let check = deny.args(["--offline", "check", "advisories"]);
    let passes = || -> Result<bool> {
        commit(&database)?;
        fetch.read().context("the database cannot be fetched")?;
        Ok(check.probe().is_some())
    };
    ensure!(
        passes()?,
        "the control failed: an advisory of a crate that is not used fails the audit"
    );
    advisory(Path::new(&database), "sqlx", "RUSTSEC-2099-0001")?;
    ensure!(
        !passes()?,
        "the control failed: an advisory of sqlx was missed"
    );
    Ok(())
}

/// Writes an advisory on every version of a crate.
fn advisory(database: &Path, package: &str, id: &str) -> Result<()> {
    let folder = database.join("crates").join(package);
    fs::create_dir_all(&folder)?;
    let head = format!("id = \"{id}\"\npackage = \"{package}\"\ndate = \"2023-11-22\"");
    let text = format!(
        "```toml\n[advisory]\n{head}\n\n[versions]\npatched = []\n```\n\n# A flaw\n\nA control.\n"
    );
    fs::write(folder.join(format!("{id}.md")), text)?;
    Ok(())
}

fn commit(database: &str) -> Result<()> {
    for line in [
        "git init --quiet --initial-branch=main",
        "git add .",
        "git -c user.name=control -c user.email=control@localhost commit --quiet -m Advisories",
    ] {
        let done = Cmd::line(line).at(database).read();
        done.context("git cannot make a database of advisories")?;
    }
    Ok(())
}
