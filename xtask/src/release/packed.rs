//! The checks of what is packed for the registries.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Outcome;
use super::tree::{Crate, Tree};
use crate::npm;
use crate::run::{Cmd, target};

/// Bytes of a packed crate above which something got in that does not belong there.
const CRATE_LIMIT: u64 = 450_000;
/// The files at the top of a packed crate; all others are under `src/`.
const AT_TOP: [&str; 7] = [
    ".cargo_vcs_info.json",
    "Cargo.lock",
    "Cargo.toml",
    "Cargo.toml.orig",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
];
/// The ends of sources, scripts, texts and the page.
const SOURCES: [&str; 8] = [
    ".rs", ".lua", ".sql", ".txt", ".jsonc", ".html", ".css", ".js",
];
/// The files of the npm package, except those under `src/`.
const NPM_FILES: &str = "xtask/src/release/npm-files.txt";

/// Packs the crates and compiles each from its package. Cargo resolves those that are not published yet to the
/// packages that it has just made.
pub(super) fn crates(tree: &Tree) -> Result<Outcome> {
    let publish = Cmd::line("cargo publish --dry-run --locked");
    publish.args(tree.selection()).run()?;
    Ok(Outcome::Passed("(nothing was uploaded)".to_owned()))
}

/// Checks the files of each package, and its size, once it is packed.
pub(super) fn crate_files(tree: &Tree) -> Result<Outcome> {
    let mut faults = Vec::new();
    for one in tree.to_publish() {
        let list = Cmd::line("cargo package --list --locked --allow-dirty -p");
        let list = list.args([&one.name]).read()?;
        faults.extend(strange_files(tree, one, &list)?);
        // Where `cargo publish` leaves what it would upload.
        let packed = format!("package/tmp-crate/{}-{}.crate", one.name, one.version);
        let packed = target().join(packed);
        match fs::metadata(&packed).map(|file| file.len()) {
            Err(_) => faults.push(format!(
                "{} is missing; run the check `crates` first, which packs it",
                packed.display()
            )),
            Ok(size) if size > CRATE_LIMIT => faults.push(format!(
                "{} has {size} bytes, more than {CRATE_LIMIT}; exclude what users do not need",
                packed.display()
            )),
            Ok(_) => {}
        }
    }
    Ok(faults.into())
}

/// Returns a fault for each file that does not belong into a package, or is missing there.
pub(super) fn strange_files(tree: &Tree, one: &Crate, list: &str) -> Result<Vec<String>> {
    let list: Vec<String> = list.lines().map(|file| file.replace('\\', "/")).collect();
    let mut faults = Vec::new();
    for file in AT_TOP
        .iter()
        .filter(|file| !list.iter().any(|listed| listed == *file))
    {
        faults.push(format!("the package of {} lacks {file}; add it", one.name));
    }
    for file in list.iter().filter(|file| !AT_TOP.contains(&file.as_str())) {
        let path = one.file(file);
        if !file.starts_with("src/") || !SOURCES.iter().any(|end| file.ends_with(end)) {
            faults.push(format!(
                "the package of {} has {file}; add it to `exclude`",
                one.name
            ));
        } else if is_secret(&tree.text(&path)?) {
            faults.push(format!("{path} has a private key; remove it"));
        }
    }
    Ok(faults)
}

/// Returns true if the text has a key in PEM: not if it only mentions one.
fn is_secret(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.any(|line| line.starts_with("-----BEGIN") && line.ends_with("PRIVATE KEY-----"))
}

/// Makes the npm package, and compares its files with the list.
pub(super) fn npm_files(tree: &Tree) -> Result<Outcome> {
    Cmd::line("cargo xtask package").run()?;
    let expected = tree.text(NPM_FILES)?;
    let expected = expected.lines().map(str::to_owned).collect();
    Ok(different_files(tree, &expected, &packed_by_npm()?).into())
}

/// Returns a fault for each file of the npm package that is not expected, or is missing.
pub(super) fn different_files(
    tree: &Tree,
    expected: &BTreeSet<String>,
    packed: &BTreeSet<String>,
) -> Vec<String> {
    let is_source = |file: &&String| file.starts_with("src/");
    let is_known = |file: &&String| {
        file.starts_with("src/generated/")
            || tree.files.contains(&format!("{}/{file}", npm::FOLDER))
    };
    let unknown = packed
        .iter()
        .filter(|file| is_source(file) && !is_known(file));
    let others: BTreeSet<_> = packed
        .iter()
        .filter(|file| !is_source(file))
        .cloned()
        .collect();
    let faults = unknown.chain(others.difference(expected)).map(|file| {
        format!("the npm package has {file}; exclude it, or run `cargo xtask release --write`")
    });
    let missing = expected.difference(&others).map(|file| {
        format!("the npm package lacks {file}; build it, or run `cargo xtask release --write`")
    });
    faults.chain(missing).collect()
}

/// Writes the list down, of the package that was built last.
pub(super) fn write_npm_files(tree: &Tree) -> Result<()> {
    let packed = packed_by_npm()?;
    let others = packed.iter().filter(|file| !file.starts_with("src/"));
    let others: Vec<_> = others.map(String::as_str).collect();
    fs::write(tree.root.join(NPM_FILES), others.join("\n") + "\n").context(NPM_FILES)
}

fn packed_by_npm() -> Result<BTreeSet<String>> {
    let pack = Cmd::line("npm pack --dry-run --json --ignore-scripts");
    let printed = pack.at(npm::FOLDER).read()?;
    let printed: Value = serde_json::from_str(&printed)?;
    let files = printed[0]["files"]
        .as_array()
        .context("npm listed no files")?;
    let paths = files.iter().filter_map(|file| file["path"].as_str());
    Ok(paths.map(str::to_owned).collect())
}
