//! The checks of manifests.

use anyhow::Result;
use serde_json::Value;

use super::Outcome;
use super::tree::{Crate, Tree};
use crate::npm;

/// The end of each host that stands for a value to be filled in.
pub(super) const PLACEHOLDER: &str = ".invalid";
/// The engine has a version of its own, and its users ask for exactly it.
const ENGINE: &str = "leasehold-engine";

/// Checks that all versions are equal, and that path dependencies between published crates have one.
pub(super) fn versions(tree: &Tree) -> Result<Outcome> {
    let version = tree.version()?;
    let mut faults = Vec::new();
    for one in tree.to_publish() {
        if one.name != ENGINE && one.version != version {
            faults.push(format!(
                "{} has the version {}, leasehold has {version}; write `version.workspace = true`",
                one.name, one.version
            ));
        }
        let dependencies = one.metadata["dependencies"].as_array();
        for dependency in dependencies.into_iter().flatten() {
            faults.extend(wrong_requirement(tree, one, dependency));
        }
    }
    let lock: Value =
        serde_json::from_str(&tree.text(&format!("{}/package-lock.json", npm::FOLDER))?)?;
    for (place, found) in [
        ("package.json", &tree.npm["version"]),
        ("package-lock.json", &lock["version"]),
        (
            "package-lock.json, packages",
            &lock["packages"][""]["version"],
        ),
    ] {
        if found != version {
            faults.push(format!(
                "{}/{place} has the version {found}, Cargo.toml has {version}; run `npm version {version} \
                 --no-git-tag-version` there",
                npm::FOLDER
            ));
        }
    }
    Ok(faults.into())
}

/// Returns the fault of a dependency on a crate of the workspace, if it has one.
fn wrong_requirement(tree: &Tree, of: &Crate, dependency: &Value) -> Option<String> {
    if dependency["path"].is_null() || dependency["kind"] == "dev" {
        return None;
    }
    let name = dependency["name"].as_str()?;
    let there = &tree.crate_named(name).ok()?.version;
    let sign = if name == ENGINE { "=" } else { "^" };
    let (wanted, found) = (format!("{sign}{there}"), dependency["req"].as_str()?);
    (found != wanted).then(|| {
        format!(
            "{} depends on {name} {found}, and its version is {there}; require {wanted} in the root's Cargo.toml",
            of.name
        )
    })
}

/// Checks that exactly the crates of the list may be published.
#[expect(clippy::unnecessary_wraps, reason = "all checks have one type")]
pub(super) fn publish(tree: &Tree) -> Result<Outcome> {
    let mut faults = Vec::new();
    for one in &tree.crates {
        let (name, listed) = (&one.name, tree.published.contains(&one.name.as_str()));
        if listed && !one.may_be_published() {
            faults.push(format!(
                "{name} is to be published; remove `publish = false`"
            ));
        } else if !listed && one.may_be_published() {
            faults.push(format!(
                "{name} is not to be published; write `publish = false`"
            ));
        }
    }
    for name in tree.published {
        if let Err(error) = tree.crate_named(name) {
            faults.push(format!(
                "{error:#}; correct the list in xtask/src/release.rs"
            ));
        }
    }
    Ok(faults.into())
}

/// Checks what the pages of the registries show.
#[expect(clippy::unnecessary_wraps, reason = "all checks have one type")]
pub(super) fn metadata(tree: &Tree) -> Result<Outcome> {
    let mut faults = Vec::new();
    for one in tree.to_publish() {
        let manifest = one.file("Cargo.toml");
        for key in [
            "description",
            "license",
            "readme",
            "repository",
            "homepage",
            "rust_version",
        ] {
            if one.metadata[key].as_str().is_none_or(str::is_empty) {
                faults.push(format!(
                    "{manifest} has no `{}`; add it",
                    key.replace('_', "-")
                ));
            }
        }
        for key in ["keywords", "categories"] {
            let words = one.metadata[key].as_array().map_or(&[][..], Vec::as_slice);
            if !(1..=5).contains(&words.len()) {
                faults.push(format!(
                    "{manifest} has {} `{key}`; crates.io takes one to five",
                    words.len()
                ));
            }
        }
        let keywords = one.metadata["keywords"].as_array().into_iter().flatten();
        for long in keywords
            .filter_map(Value::as_str)
            .filter(|word| word.len() > 20)
        {
            faults.push(format!(
                "{manifest}: the keyword {long} is longer than 20 characters; shorten it"
            ));
        }
        let readme = one.metadata["readme"].as_str().unwrap_or("README.md");
        if !tree.files.contains(&one.file(readme)) {
            faults.push(format!(
                "{manifest}: the readme {readme} is not a file of the crate's folder, from which crates.io resolves \
                 links; move it there"
            ));
        }
    }
    for key in [
        "description",
        "license",
        "author",
        "homepage",
        "repository",
        "keywords",
        "engines",
    ] {
        if tree.npm[key].is_null() {
            faults.push(format!(
                "{}/package.json has no `{key}`; add it",
                npm::FOLDER
            ));
        }
    }
    if tree.npm["repository"]["directory"] != npm::FOLDER {
        faults.push(format!(
            "package.json: `repository.directory` is not {}, from which npm resolves links; correct it",
            npm::FOLDER
        ));
    }
    Ok(faults.into())
}

/// Checks that docs.rs builds each library with all features, and shows which item needs which.
pub(super) fn docs_rs(tree: &Tree) -> Result<Outcome> {
    const ATTRIBUTE: &str = "#![cfg_attr(docsrs, feature(doc_cfg))]";
    let mut faults = Vec::new();
    for one in tree.to_publish() {
        let Some(library) = one.library() else {
            continue;
        };
        let settings = &one.metadata["metadata"]["docs"]["rs"];
        let args = settings["rustdoc-args"].as_array().into_iter().flatten();
        if settings["all-features"] != true || !args.into_iter().any(|arg| arg == "docsrs") {
            faults.push(format!(
                "{} has not `all-features = true` and `rustdoc-args = [\"--cfg\", \"docsrs\"]` under \
                 [package.metadata.docs.rs]; add them",
                one.file("Cargo.toml")
            ));
        }
        if !tree.text(&one.file(&library))?.contains(ATTRIBUTE) {
            faults.push(format!(
                "{} has not `{ATTRIBUTE}`; add it",
                one.file(&library)
            ));
        }
    }
    Ok(faults.into())
}

/// Checks that the fields are filled in, and that package.json has the same.
pub(super) fn fields(tree: &Tree) -> Result<Outcome> {
    let leasehold = &tree.crate_named("leasehold")?.metadata;
    let [author, homepage, repository] = [
        &leasehold["authors"][0],
        &leasehold["homepage"],
        &leasehold["repository"],
    ]
    .map(|value| value.as_str().unwrap_or_default());
    let mut faults = Vec::new();
    for (key, value) in [
        ("authors", author),
        ("homepage", homepage),
        ("repository", repository),
    ] {
        if value.is_empty() || value.contains(PLACEHOLDER) {
            faults.push(format!(
                "`{key}` in Cargo.toml is the placeholder {value:?}; fill it in"
            ));
        }
    }
    for (key, found, wanted) in [
        ("author", &tree.npm["author"], author.to_owned()),
        ("homepage", &tree.npm["homepage"], homepage.to_owned()),
        (
            "repository.url",
            &tree.npm["repository"]["url"],
            format!("git+{repository}.git"),
        ),
        (
            "bugs.url",
            &tree.npm["bugs"]["url"],
            format!("{repository}/issues"),
        ),
    ] {
        if *found != wanted {
            faults.push(format!(
                "`{key}` in {}/package.json is {found}, and by Cargo.toml {wanted:?}; run `npm run build` there",
                npm::FOLDER
            ));
        }
    }
    Ok(faults.into())
}
