//! The checks of sources, READMEs, licenses and workflows.

use std::fs;

use anyhow::Result;

use super::Outcome;
use super::manifests::PLACEHOLDER;
use super::tools::{LINTS, NIGHTLY};
use super::tree::{Crate, Tree};
use crate::markdown::Page;
use crate::npm;

/// The files that may name a placeholder host, and why.
const MAY_HAVE_PLACEHOLDERS: &[(&str, &str)] = &[
    (
        "Cargo.toml",
        "the fields of the publisher, which another check looks at",
    ),
    ("bindings/node/package.json", "takes the fields over"),
    (
        "bindings/node/test/adapters/connect.test.mjs",
        "a host that does not exist",
    ),
    (
        "bindings/node/test/package/playground.test.mjs",
        "a host that is refused",
    ),
    (
        "tests/bench/peers/go/go.mod",
        "a module that nobody imports",
    ),
];
/// These folders hold the checks themselves, and their tests.
const OF_THE_CHECKS: &str = "xtask/src/release";
const LICENSES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];
/// The hosts for which crates.io and npm make relative links absolute.
const LINKING_HOSTS: [&str; 3] = [
    "https://github.com/",
    "https://gitlab.com/",
    "https://bitbucket.org/",
];
/// The commands that a workflow may run.
const COMMANDS: [&str; 3] = ["cargo xtask ", "rustup ", "cargo install --locked "];

/// Checks that each package has the licenses of the root.
pub(super) fn licenses(tree: &Tree) -> Result<Outcome> {
    let mut faults = Vec::new();
    for license in LICENSES {
        let wanted = tree.text(license)?;
        let folders = tree.to_publish().map(|one| one.file(license));
        // The npm package's copies are made by its build.
        let built = format!("{}/{license}", npm::FOLDER);
        let built = tree.root.join(&built).exists().then_some(built);
        for file in folders.chain(built) {
            if fs::read_to_string(tree.root.join(&file)).ok().as_ref() != Some(&wanted) {
                faults.push(format!(
                    "{file} is missing or differs; run `cp {license} {file}`"
                ));
            }
        }
    }
    Ok(faults.into())
}

/// Checks that CHANGELOG.md has a heading for the version.
pub(super) fn changelog(tree: &Tree) -> Result<Outcome> {
    let version = tree.version()?;
    let text = tree.text("CHANGELOG.md")?;
    let mut headings = text.lines().filter_map(|line| line.strip_prefix("## "));
    let is_of_version = |heading: &str| {
        let first = heading.split_whitespace().next().unwrap_or_default();
        first.trim_matches(['[', ']']) == version
    };
    let faults = if headings.any(is_of_version) {
        Vec::new()
    } else {
        vec![format!(
            "CHANGELOG.md has no heading `## {version}`; write what the version brings"
        )]
    };
    Ok(faults.into())
}

/// Checks that no crate to publish includes a file that its package does not contain.
pub(super) fn includes(tree: &Tree) -> Result<Outcome> {
    let mut faults = Vec::new();
    for one in tree.to_publish() {
        let sources = one.file("src/");
        let is_source = |file: &&String| {
            file.starts_with(&sources) && file.rsplit_once('.').is_some_and(|(_, end)| end == "rs")
        };
        for file in tree.files.iter().filter(is_source) {
            for included in included(&tree.text(file)?) {
                let Some(target) = resolve(file, &included) else {
                    faults.push(format!(
                        "{file} includes {included}, above the root; move it"
                    ));
                    continue;
                };
                if !target.starts_with(&format!("{}/", one.folder))
                    || is_of_another(tree, one, &target)
                {
                    faults.push(format!(
                        "{file} includes {target}, which is outside of the package {}; move it inside, or read it \
                         at run time in a test",
                        one.name
                    ));
                }
            }
        }
    }
    Ok(faults.into())
}

/// Returns true if the file is in a crate that lies inside of this one.
fn is_of_another(tree: &Tree, one: &Crate, file: &str) -> bool {
    let inner = |other: &&Crate| other.folder.starts_with(&format!("{}/", one.folder));
    let mut inside = tree.crates.iter().filter(inner);
    inside.any(|other| file.starts_with(&format!("{}/", other.folder)))
}

/// Returns the arguments of `include_str!` and `include_bytes!`.
fn included(text: &str) -> Vec<String> {
    let calls = ["include_str!(", "include_bytes!("].iter();
    let rests = calls.flat_map(|call| text.split(call).skip(1));
    let paths = rests.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
    paths.map(str::to_owned).collect()
}

/// Returns the path that a link in `file` leads to, seen from the root; `None` if that is above the root.
fn resolve(file: &str, link: &str) -> Option<String> {
    let mut folders: Vec<&str> = file.split('/').collect();
    folders.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                folders.pop()?;
            }
            name => folders.push(name),
        }
    }
    Some(folders.join("/"))
}

/// Checks that no file but the listed ones names a host that stands for another one.
pub(super) fn placeholders(tree: &Tree) -> Result<Outcome> {
    let mut faults = Vec::new();
    for file in &tree.files {
        let is_excepted = MAY_HAVE_PLACEHOLDERS
            .iter()
            .any(|(excepted, _)| excepted == file);
        if is_excepted || file.starts_with(OF_THE_CHECKS) {
            continue;
        }
        for (number, line) in tree.text(file)?.lines().enumerate() {
            if has_placeholder(file, line) {
                faults.push(format!(
                    "{file}:{} names a placeholder host; write the real one",
                    number + 1
                ));
            }
        }
    }
    Ok(faults.into())
}

fn has_placeholder(file: &str, line: &str) -> bool {
    let is_text = [".md", ".toml", ".json", ".yml", ".yaml", ".html", ".mod"].iter();
    let is_text = is_text.clone().any(|end| file.ends_with(end));
    line.match_indices(PLACEHOLDER).any(|(at, found)| {
        let (before, after) = (&line[..at], &line[at + found.len()..]);
        let is_host = before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '-')
            && !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        // In code `vectors.invalid` is a field.
        is_host
            && (is_text
                || before.contains("://")
                || before.contains('@')
                || after.starts_with(['"', '/']))
    })
}

/// Checks the links and images of the READMEs that the registries and docs.rs show.
pub(super) fn links(tree: &Tree) -> Result<Outcome> {
    let repository = &tree.crate_named("leasehold")?.metadata["repository"];
    let repository = repository.as_str().unwrap_or_default();
    let are_made_absolute = repository.contains(PLACEHOLDER)
        || LINKING_HOSTS
            .iter()
            .any(|host| repository.starts_with(host));
    let mut faults = Vec::new();
    let crates = tree
        .to_publish()
        .map(|one| (one.file("README.md"), on_docs_rs(tree, one)));
    let npm = (format!("{}/README.md", npm::FOLDER), false);
    for (file, on_docs_rs) in crates.chain([npm]) {
        let page = Page::new(&tree.text(&file)?);
        for link in &page.links {
            let fault = if let Some(heading) = link.strip_prefix('#') {
                (!page.anchors.contains(heading)).then_some("there is no such heading")
            } else if link.starts_with("https://") || link.starts_with("mailto:") {
                None
            } else if link.contains(':') {
                Some("use https")
            } else if on_docs_rs {
                Some("docs.rs does not resolve relative links; write the whole address")
            } else if !are_made_absolute {
                Some(
                    "the registries do not resolve relative links to this repository; write the whole address",
                )
            } else {
                fault_of_relative(tree, &file, link)
            };
            faults.extend(fault.map(|fault| format!("{file}: the link {link}: {fault}")));
        }
    }
    Ok(faults.into())
}

/// Returns true if the library's documentation contains the README.
fn on_docs_rs(tree: &Tree, one: &Crate) -> bool {
    let library = one
        .library()
        .and_then(|library| tree.text(&one.file(&library)).ok());
    library.is_some_and(|text| text.contains(r#"#![doc = include_str!("../README.md")]"#))
}

fn fault_of_relative(tree: &Tree, file: &str, link: &str) -> Option<&'static str> {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let Some(target) = resolve(file, path) else {
        return Some("it leads above the root of the repository");
    };
    let inside = format!("{target}/");
    if !tree
        .files
        .iter()
        .any(|file| *file == target || file.starts_with(&inside))
    {
        return Some("there is no such file in the repository");
    }
    let text = tree.text(&target).unwrap_or_default();
    (!heading.is_empty() && !Page::new(&text).anchors.contains(heading))
        .then_some("the file has no such heading")
}

/// Checks that workflows run what is pinned, with few rights.
pub(super) fn workflows(tree: &Tree) -> Result<Outcome> {
    let mut faults = Vec::new();
    let of_workflows = |file: &&String| file.starts_with(".github/workflows/");
    let files: Vec<_> = tree.files.iter().filter(of_workflows).collect();
    if files.is_empty() {
        faults.push(".github/workflows has no workflow; add them".to_owned());
    }
    let container = ".devcontainer/devcontainer.json";
    if tree.text(container).is_ok_and(|text| !text.contains(LINTS)) {
        faults.push(format!(
            "{container} does not install Rust {LINTS}; correct it"
        ));
    }
    for file in files {
        let text = tree.text(file)?;
        if !text.lines().any(|line| line.starts_with("permissions:")) {
            faults.push(format!(
                "{file} has no `permissions:` of its own; write `permissions: {{}}` or fewer rights"
            ));
        }
        for line in text
            .lines()
            .map(|line| line.trim_start().trim_start_matches("- "))
        {
            faults.extend(fault_of_step(line).map(|fault| format!("{file}: `{line}`: {fault}")));
        }
    }
    Ok(faults.into())
}

fn fault_of_step(line: &str) -> Option<String> {
    if let Some(action) = line.strip_prefix("uses: ") {
        let (_, commit) = action.split_once('@').unwrap_or_default();
        let commit: String = commit.chars().take_while(char::is_ascii_hexdigit).collect();
        return (commit.len() != 40).then(|| "pin the action to a commit of 40 digits".to_owned());
    }
    for (name, version) in [("RUST_TOOLCHAIN: ", LINTS), ("RUST_NIGHTLY: ", NIGHTLY)] {
        if let Some(found) = line.strip_prefix(name) {
            let is_other = found.trim_matches('"') != version;
            return is_other
                .then(|| format!("xtask/src/release/tools.rs has {version}; write the same"));
        }
    }
    let command = line.strip_prefix("run: ")?;
    let is_known = COMMANDS.iter().any(|known| command.starts_with(known));
    (!is_known).then(|| "put it into a task of xtask".to_owned())
}
