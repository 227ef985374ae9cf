//! The checks by compilers and maintained tools.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Outcome;
use super::tree::{Crate, Tree};
use crate::run::Cmd;

/// The compiler whose lints must have nothing to say. There is no `rust-toolchain.toml`, which would impose it on
/// everybody who builds the crates.
pub(super) const LINTS: &str = "1.95.0";
/// The compiler that documents as docs.rs does, and writes the JSON that cargo-public-api reads.
pub(super) const NIGHTLY: &str = "nightly-2026-05-20";

/// The committed public API of a crate, in its folder.
const PUBLIC_API: &str = "public-api.txt";

/// Checks that the compiler in use is the pinned one.
pub(super) fn toolchain(_: &Tree) -> Result<Outcome> {
    let printed = Cmd::line("rustc --version").read()?;
    let faults = if printed.split_whitespace().nth(1) == Some(LINTS) {
        Vec::new()
    } else {
        vec![format!(
            "the compiler is {}, and lints are pinned to {LINTS}; run `rustup toolchain install {LINTS}`, then \
             `cargo +{LINTS} xtask release --dry-run`",
            printed.trim()
        )]
    };
    Ok(faults.into())
}

/// Checks the claims of all dependencies that a user of the default features compiles.
pub(super) fn rust_versions(tree: &Tree) -> Result<Outcome> {
    let used = Tree::used_by(&tree.selection())?;
    let metadata = Cmd::line("cargo metadata --locked --format-version=1").read()?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let claims = packages.iter().map(|package| {
        let id = (text(package, "name"), text(package, "version"));
        (id, text(package, "rust_version"))
    });
    let claimed = text(&tree.crate_named("leasehold")?.metadata, "rust_version");
    let faults = too_new(&claimed, &used, &claims.collect());
    ensure!(
        used.len() > tree.published.len(),
        "`cargo tree` printed no dependencies"
    );
    Ok(faults.into())
}

/// Returns a fault for each package in use that claims a newer Rust.
pub(super) fn too_new(
    claimed: &str,
    used: &BTreeSet<(String, String)>,
    claims: &BTreeMap<(String, String), String>,
) -> Vec<String> {
    let number = |text: &str| -> Vec<u32> {
        text.split('.')
            .filter_map(|part| part.parse().ok())
            .collect()
    };
    let newer = used.iter().filter_map(|id| {
        let claim = claims.get(id)?;
        // 1.88.0 is not newer than 1.88.
        let wanted = number(claim).into_iter().take(2).collect::<Vec<_>>();
        (wanted > number(claimed)).then_some((id, claim))
    });
    newer
        .map(|((name, version), claim)| {
            format!(
                "{name} {version} needs Rust {claim}, and `rust-version` is {claimed}; run `cargo update {name} \
                 --precise` with an older version, or raise `rust-version`"
            )
        })
        .collect()
}

/// Compiles the crates, with their default features, by the oldest compiler that they claim.
pub(super) fn msrv(tree: &Tree) -> Result<Outcome> {
    let version = tree.crate_named("leasehold")?.metadata["rust_version"].clone();
    let version = version
        .as_str()
        .context("leasehold has no `rust-version`")?;
    ensure!(
        has_toolchain(version),
        "Rust {version} is not installed; run `rustup toolchain install {version} --profile minimal`"
    );
    let check = format!("rustup run {version} cargo check --locked --target-dir=target/msrv");
    Cmd::line(&check).args(tree.selection()).run()?;
    Ok(Outcome::Passed(
        "(with the default features; postgres, mysql and sqlite need Rust 1.94, which sqlx asks for)".to_owned(),
    ))
}

fn has_toolchain(name: &str) -> bool {
    let version = format!("rustup run {name} rustc --version");
    Cmd::line(&version).probe().is_some()
}

/// Returns what is missing to work with the nightly compiler.
fn missing_nightly() -> Option<Outcome> {
    (!has_toolchain(NIGHTLY)).then(|| {
        Outcome::NotRun(format!(
            "{NIGHTLY} is missing; run `rustup toolchain install {NIGHTLY} --profile minimal`"
        ))
    })
}

/// Documents the libraries as docs.rs does.
pub(super) fn docs(tree: &Tree) -> Result<Outcome> {
    if let Some(outcome) = missing_nightly() {
        return Ok(outcome);
    }
    let doc = format!(
        "rustup run {NIGHTLY} cargo doc --no-deps --lib --all-features --locked --target-dir=target/nightly"
    );
    let doc = Cmd::line(&doc).with_env("RUSTDOCFLAGS", "--cfg docsrs -D warnings");
    doc.args(libraries(tree).flat_map(|one| ["-p", &one.name]))
        .run()?;
    Ok(Vec::new().into())
}

fn libraries(tree: &Tree) -> impl Iterator<Item = &Crate> {
    tree.to_publish().filter(|one| one.library().is_some())
}

/// Compares the public API of each library with the committed one.
pub(super) fn public_api(tree: &Tree) -> Result<Outcome> {
    if let Some(outcome) = missing_nightly().or_else(|| missing_tool("public-api")) {
        return Ok(outcome);
    }
    let mut faults = Vec::new();
    for one in libraries(tree) {
        let file = one.file(PUBLIC_API);
        let committed = tree.text(&file).unwrap_or_default();
        faults.extend(changes(&file, &committed, &api_of(one)?));
    }
    Ok(faults.into())
}

/// Returns a fault that shows the first changes, if there are any.
pub(super) fn changes(file: &str, committed: &str, found: &str) -> Option<String> {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) =
        (committed.lines().collect(), found.lines().collect());
    let removed = old.difference(&new).map(|line| format!("-{line}"));
    let added = new.difference(&old).map(|line| format!("+{line}"));
    let all: Vec<_> = removed.chain(added).collect();
    (!all.is_empty()).then(|| {
        format!(
            "{file} differs in {} lines, such as {:?}; if you mean the change, run `cargo xtask release --write` and \
             commit the file",
            all.len(),
            &all[..all.len().min(3)]
        )
    })
}

fn api_of(one: &Crate) -> Result<String> {
    let line = format!(
        "rustup run {NIGHTLY} cargo public-api -p {} --all-features -sss --color=never --target-dir=target/nightly",
        one.name
    );
    println!("   {line}");
    Cmd::line(&line).read()
}

/// Writes the public API of each library down.
pub(super) fn write_api(tree: &Tree) -> Result<()> {
    for one in libraries(tree) {
        fs::write(tree.root.join(one.file(PUBLIC_API)), api_of(one)?)?;
    }
    Ok(())
}

/// Compares the libraries with those of the last tag.
pub(super) fn semver(tree: &Tree) -> Result<Outcome> {
    let last = Cmd::line("git describe --tags --abbrev=0 --match=v*").probe();
    let Some(last) = last else {
        return Ok(Outcome::Passed(
            "(first release: there is nothing to compare with)".to_owned(),
        ));
    };
    if let Some(outcome) = missing_tool("semver-checks") {
        return Ok(outcome);
    }
    let check = Cmd::line("cargo semver-checks --all-features --baseline-rev").args([last.trim()]);
    check
        .args(libraries(tree).flat_map(|one| ["-p", &one.name]))
        .run()?;
    Ok(Outcome::Passed(format!("(since {})", last.trim())))
}

/// Returns what is missing to run `cargo TOOL`.
pub(super) fn missing_tool(tool: &str) -> Option<Outcome> {
    let version = format!("cargo {tool} --version");
    Cmd::line(&version).probe().is_none().then(|| {
        Outcome::NotRun(format!(
            "cargo-{tool} is missing; run `cargo install --locked cargo-{tool}`"
        ))
    })
}
