//! Plants a fault in a small tree, and sees that the check finds it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::tree::Tree;
use super::{OF_FILES, Outcome, PUBLISHED, artifacts, manifests, packed, texts, tools};
use crate::run::{Cmd, root, target};

const SMALL: &[&str] = &["leasehold-engine", "leasehold"];
const README: &str = "# A lock\n\n[below](#the-end), [docs](https://docs.rs/leasehold), [text](text.md)\n\n## The end\n";
const LIBRARY: &str =
    "#![cfg_attr(docsrs, feature(doc_cfg))]\nconst TEXT: &str = include_str!(\"text.txt\");\n";
const WORKFLOW: &str = "permissions: {}\njobs:\n  a:\n    steps:\n      - uses: \
                        a/b@0123456789abcdef0123456789abcdef01234567 # v1\n      - run: cargo xtask test\n";

/// A small tree of a root, two crates to publish, one that is not, and an npm package.
struct Small {
    root: PathBuf,
}

impl Small {
    fn new(name: &str) -> Self {
        let small = Self {
            root: target().join("release-tests").join(name),
        };
        if small.root.exists() {
            fs::remove_dir_all(&small.root).expect("it can be removed");
        }
        small.write(
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\"core\", \"core/engine\", \"tests\"]\n",
        );
        small.write(
            "core/Cargo.toml",
            &manifest(
                "leasehold",
                "leasehold-engine = { path = \"engine\", version = \"=1.2.0\" }",
            ),
        );
        small.write("core/engine/Cargo.toml", &manifest("leasehold-engine", ""));
        small.write(
            "tests/Cargo.toml",
            "[package]\nname = \"helper\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n",
        );
        small.write("tests/src/lib.rs", "");
        for folder in ["", "core/", "core/engine/"] {
            small.write(&format!("{folder}LICENSE-MIT"), "MIT");
            small.write(&format!("{folder}LICENSE-APACHE"), "Apache");
        }
        for folder in ["core", "core/engine"] {
            small.write(&format!("{folder}/src/lib.rs"), LIBRARY);
            small.write(&format!("{folder}/src/text.txt"), "text");
            small.write(&format!("{folder}/README.md"), README);
            small.write(&format!("{folder}/text.md"), "# A text\n");
        }
        small.write("CHANGELOG.md", "# Changelog\n\n## 1.2.0\n");
        small.write(
            "bindings/node/README.md",
            "# A lock\n\n[licence](../../LICENSE-MIT)\n",
        );
        small.write("bindings/node/package.json", PACKAGE_JSON);
        small.write(
            "bindings/node/package-lock.json",
            r#"{ "version": "1.2.0", "packages": { "": { "version": "1.2.0" } } }"#,
        );
        small.write(".github/workflows/ci.yml", WORKFLOW);
        let at = small.root.to_str().expect("a path in UTF-8");
        let init = Cmd::line("git init --quiet").at(at);
        init.run().expect("git is there");
        small
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.root.join(file);
        fs::create_dir_all(file.parent().expect("it has a folder")).expect("it can be made");
        fs::write(file, text).expect("it can be written");
    }

    fn replace(&self, file: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.root.join(file)).expect("it can be read");
        assert!(text.contains(from), "{file} has no {from:?}");
        self.write(file, &text.replace(from, to));
    }

    fn run(&self, check: fn(&Tree) -> Result<Outcome>) -> Outcome {
        let tree = Tree::read(&self.root, SMALL).expect("it is a tree");
        check(&tree).unwrap_or_else(|error| Outcome::Failed(vec![format!("{error:#}")]))
    }

    /// Asserts that the check fails, and says each of the words.
    fn fails(&self, check: fn(&Tree) -> Result<Outcome>, says: &[&str]) {
        let outcome = self.run(check);
        let Outcome::Failed(faults) = &outcome else {
            panic!("the check let it pass: {outcome:?}");
        };
        let text = faults.join("\n");
        assert!(says.iter().all(|word| text.contains(word)), "{text}");
    }
}

fn manifest(name: &str, dependencies: &str) -> String {
    format!(
        r#"[package]
name = "{name}"
version = "1.2.0"
edition = "2024"
rust-version = "1.88"
description = "A lock."
license = "MIT OR Apache-2.0"
authors = ["Somebody <somebody@example.com>"]
repository = "https://github.com/somebody/leasehold"
homepage = "https://leasehold.example.com"
readme = "README.md"
keywords = ["lock"]
categories = ["concurrency"]

[package.metadata.docs.rs]
all-features = true
rustdoc-args = ["--cfg", "docsrs"]

[dependencies]
{dependencies}
"#
    )
}

const PACKAGE_JSON: &str = r#"{
  "name": "leasehold", "version": "1.2.0", "description": "A lock.", "license": "MIT OR Apache-2.0",
  "author": "Somebody <somebody@example.com>", "homepage": "https://leasehold.example.com",
  "repository": { "url": "git+https://github.com/somebody/leasehold.git", "directory": "bindings/node" },
  "bugs": { "url": "https://github.com/somebody/leasehold/issues" },
  "keywords": ["lock"], "engines": { "node": ">=20" }
}"#;

#[test]
fn a_tree_without_faults_passes() {
    let small = Small::new("sound");
    let further = [manifests::fields as fn(&Tree) -> _, texts::changelog];
    for check in OF_FILES.iter().map(|check| check.run).chain(further) {
        assert_eq!(small.run(check), Outcome::Passed(String::new()));
    }
}

#[test]
fn this_repository_passes_the_checks_of_files() {
    let tree = Tree::read(&root(), PUBLISHED).expect("it is a tree");
    for check in OF_FILES {
        let outcome = (check.run)(&tree).expect("the files can be read");
        assert_eq!(outcome, Outcome::Passed(String::new()), "{}", check.name);
    }
}

#[test]
fn other_versions_fail() {
    let small = Small::new("versions");
    small.replace("core/Cargo.toml", ", version = \"=1.2.0\"", "");
    small.fails(
        manifests::versions,
        &["leasehold depends on leasehold-engine *", "require =1.2.0"],
    );
    small.replace("bindings/node/package.json", "1.2.0", "1.1.0");
    small.replace(
        "bindings/node/package-lock.json",
        "\"\": { \"version\": \"1.2.0\"",
        "\"\": { \"version\": \"1.0.0\"",
    );
    small.fails(
        manifests::versions,
        &[
            "package.json has the version \"1.1.0\"",
            "packages has the version \"1.0.0\"",
        ],
    );
}

#[test]
fn a_version_without_changes_written_down_fails() {
    let small = Small::new("changelog");
    small.replace("CHANGELOG.md", "1.2.0", "Unreleased");
    small.fails(texts::changelog, &["no heading `## 1.2.0`"]);
}

#[test]
fn a_crate_that_is_published_by_mistake_fails() {
    let small = Small::new("publish");
    small.replace("tests/Cargo.toml", "publish = false\n", "");
    small.replace(
        "core/engine/Cargo.toml",
        "[package]",
        "[package]\npublish = false",
    );
    small.fails(
        manifests::publish,
        &[
            "helper is not to be published",
            "leasehold-engine is to be published",
        ],
    );
}

#[test]
fn missing_metadata_fails() {
    let small = Small::new("metadata");
    small.replace("core/Cargo.toml", "keywords = [\"lock\"]\n", "");
    small.replace(
        "core/Cargo.toml",
        "readme = \"README.md\"",
        "readme = \"../README.md\"",
    );
    small.replace(
        "bindings/node/package.json",
        "\"bindings/node\"",
        "\"node\"",
    );
    small.fails(
        manifests::metadata,
        &[
            "core/Cargo.toml has 0 `keywords`",
            "the readme ../README.md is not",
            "`repository.directory`",
        ],
    );
}

#[test]
fn a_crate_that_docs_rs_would_show_in_part_fails() {
    let small = Small::new("docs-rs");
    small.replace("core/Cargo.toml", "all-features = true\n", "");
    small.write("core/engine/src/lib.rs", "");
    small.fails(
        manifests::docs_rs,
        &[
            "core/Cargo.toml has not `all-features = true`",
            "core/engine/src/lib.rs has not",
        ],
    );
}

#[test]
fn a_field_that_nobody_filled_in_fails() {
    let small = Small::new("fields");
    small.replace(
        "core/Cargo.toml",
        "leasehold.example.com",
        "homepage.invalid",
    );
    small.fails(
        manifests::fields,
        &[
            "`homepage` in Cargo.toml",
            "`homepage` in bindings/node/package.json",
        ],
    );
}

#[test]
fn a_license_that_is_missing_or_differs_fails() {
    let small = Small::new("licenses");
    fs::remove_file(small.root.join("core/LICENSE-MIT")).expect("it is there");
    small.write("core/engine/LICENSE-APACHE", "Apache, more or less");
    small.fails(
        texts::licenses,
        &[
            "core/LICENSE-MIT is missing",
            "core/engine/LICENSE-APACHE is missing or differs",
        ],
    );
}

#[test]
fn a_file_outside_of_the_package_fails() {
    let small = Small::new("includes");
    small.replace(
        "core/engine/src/lib.rs",
        "\"text.txt\"",
        "\n    \"../../src/text.txt\"",
    );
    small.fails(
        texts::includes,
        &["core/engine/src/lib.rs includes core/src/text.txt"],
    );
    // The folder of a crate inside of another one is not in the package of the latter.
    small.replace(
        "core/src/lib.rs",
        "\"text.txt\"",
        "\"../engine/src/text.txt\"",
    );
    small.fails(
        texts::includes,
        &["core/src/lib.rs includes core/engine/src/text.txt"],
    );
}

#[test]
fn a_placeholder_in_another_place_fails() {
    let small = Small::new("placeholders");
    small.write("NOTES.md", "See docs.invalid.\n");
    small.write(
        "core/src/url.rs",
        "let field = vectors.invalid;\nlet url = \"https://docs.invalid/a\";\n",
    );
    small.fails(texts::placeholders, &["NOTES.md:1", "core/src/url.rs:2"]);
    let Outcome::Failed(faults) = small.run(texts::placeholders) else {
        panic!("it has just failed");
    };
    assert_eq!(faults.len(), 2, "{faults:?}");
}

#[test]
fn a_link_that_leads_nowhere_fails() {
    let small = Small::new("links");
    small.replace(
        "core/README.md",
        "](text.md)",
        "](../docs/none.md) ![](http://example.com/a.png)",
    );
    small.replace("core/engine/README.md", "#the-end", "#another-end");
    small.fails(
        texts::links,
        &[
            "../docs/none.md: there is no such file",
            "a.png: use https",
            "#another-end: there is no such heading",
        ],
    );
}

#[test]
fn a_relative_link_that_no_registry_resolves_fails() {
    let small = Small::new("relative-links");
    small.write(
        "core/src/lib.rs",
        "#![doc = include_str!(\"../README.md\")]",
    );
    small.fails(
        texts::links,
        &["core/README.md: the link text.md: docs.rs does not"],
    );
    small.replace("core/Cargo.toml", "github.com", "git.example.com");
    small.fails(
        texts::links,
        &["the registries do not resolve relative links"],
    );
}

#[test]
fn a_workflow_that_trusts_too_much_fails() {
    let small = Small::new("workflows");
    let all = [
        "permissions: {}\n",
        "@0123456789abcdef0123456789abcdef01234567",
        "cargo xtask test",
    ];
    for (from, to) in all.into_iter().zip(["", "@v1", "./test.sh"]) {
        small.replace(".github/workflows/ci.yml", from, to);
    }
    small.write(
        ".github/workflows/other.yml",
        "permissions: {}\nenv:\n  RUST_TOOLCHAIN: \"1.0.0\"\n",
    );
    small.fails(
        texts::workflows,
        &[
            "has no `permissions:`",
            "40 digits",
            "a task of xtask",
            "other.yml: `RUST_TOOLCHAIN",
        ],
    );
}

#[test]
fn a_strange_file_in_a_package_fails() {
    let small = Small::new("crate-files");
    small.write("core/src/key.txt", "-----BEGIN PRIVATE KEY-----\n");
    let tree = Tree::read(&small.root, SMALL).expect("it is a tree");
    let one = tree.crate_named("leasehold").expect("it is there");
    let list = "Cargo.toml\nCargo.toml.orig\nCargo.lock\n.cargo_vcs_info.json\nLICENSE-MIT\nREADME.md\nsrc/lib.rs\n\
                src/key.txt\nsrc/.env\ntests/a.rs\n";
    let faults = packed::strange_files(&tree, one, list).expect("the files can be read");
    let text = faults.join("\n");
    for says in [
        "lacks LICENSE-APACHE",
        "key.txt has a private key",
        "has src/.env",
        "has tests/a.rs",
    ] {
        assert!(text.contains(says), "{text}");
    }
    assert_eq!(faults.len(), 4, "{text}");
}

#[test]
fn another_list_of_npm_files_fails() {
    let small = Small::new("npm-files");
    small.write("bindings/node/src/index.ts", "");
    let tree = Tree::read(&small.root, SMALL).expect("it is a tree");
    let set = |files: &[&str]| {
        files
            .iter()
            .map(|&file| file.to_owned())
            .collect::<BTreeSet<_>>()
    };
    let expected = set(&["README.md", "dist/index.js"]);
    let same = set(&[
        "README.md",
        "dist/index.js",
        "src/index.ts",
        "src/generated/glue.js",
    ]);
    assert!(packed::different_files(&tree, &expected, &same).is_empty());
    let other = set(&["README.md", "dist/secret.js", "src/untracked.ts"]);
    let text = packed::different_files(&tree, &expected, &other).join("\n");
    for says in [
        "has dist/secret.js",
        "has src/untracked.ts",
        "lacks dist/index.js",
    ] {
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn a_dependency_that_needs_a_newer_rust_fails() {
    let id = |name: &str| (name.to_owned(), "1.0.0".to_owned());
    let claims = ["a", "b", "c"]
        .map(id)
        .into_iter()
        .zip(["1.88.0", "1.94", ""].map(str::to_owned));
    let claims: BTreeMap<_, _> = claims.collect();
    let used = ["a", "b", "c"].map(id).into();
    let faults = tools::too_new("1.88", &used, &claims);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0].starts_with("b 1.0.0 needs Rust 1.94"),
        "{faults:?}"
    );
}

#[test]
fn a_changed_api_fails() {
    assert_eq!(
        tools::changes("public-api.txt", "pub fn a\n", "pub fn a\n"),
        None
    );
    let fault = tools::changes("public-api.txt", "pub fn a\n", "pub fn b\n").expect("it differs");
    assert!(
        fault.contains("-pub fn a") && fault.contains("+pub fn b"),
        "{fault}"
    );
}

#[test]
fn a_bill_of_materials_lists_what_is_used() {
    let component = |name: &str| json!({ "name": name, "version": "1.0.0", "bom-ref": name });
    let mut bill = json!({
        "metadata": { "component": component("cli") },
        "components": [component("used"), component("other")],
        "dependencies": [{ "ref": "cli", "dependsOn": ["used", "other"] }, { "ref": "other" }],
    });
    let used = [("used".to_owned(), "1.0.0".to_owned())].into();
    assert!(artifacts::keep_used(&mut bill, &used));
    assert_eq!(bill["components"], json!([component("used")]));
    assert_eq!(
        bill["dependencies"],
        json!([{ "ref": "cli", "dependsOn": ["used"] }])
    );
    assert!(!artifacts::keep_used(&mut bill, &BTreeSet::new()));
}
