//! `cargo xtask audit`: the dependencies, checked by cargo-deny as `deny.toml` says.

use anyhow::{Result, ensure};

use crate::run::Cmd;

const OFFLINE: Cmd<'_> = Cmd::cargo(&["deny", "check", "bans", "licenses", "sources"]);
const FETCH: Cmd<'_> = Cmd::cargo(&["deny", "fetch", "db"]);
const ADVISORIES: Cmd<'_> = Cmd::cargo(&["deny", "check", "--disable-fetch", "advisories"]);

/// Runs all the checks, even after one that failed.
pub(crate) fn main() -> Result<()> {
    ensure!(
        Cmd::cargo(&["deny", "--version"]).probe().is_some(),
        "cargo-deny is missing; install it with: cargo install --locked cargo-deny"
    );
    let offline = run(OFFLINE);
    // A separate command, because the exit status of the check itself does not tell a database
    // that could not be fetched from an advisory that was found.
    if let Err(error) = run(FETCH) {
        println!("== {error:#}");
        println!("== WARNING: advisories: not checked: could not fetch");
        return offline;
    }
    let advisories = run(ADVISORIES);
    offline.and(advisories)
}

fn run(cmd: Cmd<'_>) -> Result<()> {
    println!("== {cmd}");
    cmd.run()
}
