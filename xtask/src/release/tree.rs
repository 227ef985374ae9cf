//! The files and manifests that the checks look at.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::npm;
use crate::run::Cmd;

/// A checkout of the repository.
pub(super) struct Tree {
    pub(super) root: PathBuf,
    /// The names of the crates to publish, in the order of their dependencies.
    pub(super) published: &'static [&'static str],
    /// Every file that git tracks or would track, with `/` between folders.
    pub(super) files: Vec<String>,
    /// Every crate of the workspace.
    pub(super) crates: Vec<Crate>,
    /// The package.json of the npm package.
    pub(super) npm: Value,
}

/// A crate, as `cargo metadata` shows it.
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    /// Seen from the root, with `/` between folders.
    pub(super) folder: String,
    pub(super) metadata: Value,
}

impl Tree {
    pub(super) fn read(root: &Path, published: &'static [&'static str]) -> Result<Self> {
        let at = root.to_str().context("the root's path is not UTF-8")?;
        let list = "git -c core.quotePath=false ls-files --cached --others --exclude-standard";
        let files = Cmd::line(list).at(at).read()?;
        let files = files.lines().filter(|file| root.join(file).is_file());
        let metadata = Cmd::line("cargo metadata --no-deps --offline --format-version=1");
        let metadata = metadata.at(at).read()?;
        let metadata: Value = serde_json::from_str(&metadata)?;
        let workspace = metadata["workspace_root"].as_str().context("no root")?;
        let packages = metadata["packages"].as_array().context("no packages")?;
        let package_json = fs::read(root.join(npm::FOLDER).join("package.json"))?;
        Ok(Self {
            root: root.to_owned(),
            published,
            files: files.map(str::to_owned).collect(),
            crates: packages
                .iter()
                .map(|package| Crate::read(package, workspace))
                .collect::<Result<_>>()?,
            npm: serde_json::from_slice(&package_json).context("package.json")?,
        })
    }

    pub(super) fn text(&self, file: &str) -> Result<String> {
        let bytes = fs::read(self.root.join(file)).with_context(|| file.to_owned())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn crate_named(&self, name: &str) -> Result<&Crate> {
        let found = self.crates.iter().find(|one| one.name == name);
        found.with_context(|| format!("the workspace has no crate {name}"))
    }

    /// Returns the crates to publish that exist, in the order of their dependencies.
    pub(super) fn to_publish(&self) -> impl Iterator<Item = &Crate> {
        let named = |name: &&str| self.crates.iter().find(|one| one.name == *name);
        self.published.iter().filter_map(named)
    }

    /// Returns the arguments `-p NAME` for each crate to publish.
    pub(super) fn selection(&self) -> Vec<&'static str> {
        self.published
            .iter()
            .flat_map(|name| ["-p", *name])
            .collect()
    }

    /// Returns the name and version of each package that the selected crates compile with their default features.
    pub(super) fn used_by(selection: &[&str]) -> Result<BTreeSet<(String, String)>> {
        let tree =
            "cargo tree --locked --edges=normal,build --target=all --prefix=none --format={p}";
        let printed = Cmd::line(tree).args(selection).read()?;
        let of_line = |line: &str| {
            let mut words = line.split_whitespace();
            let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
            Some((name.to_owned(), version.to_owned()))
        };
        Ok(printed.lines().filter_map(of_line).collect())
    }

    /// Returns the version of the release: that of the crate `leasehold`.
    pub(super) fn version(&self) -> Result<&str> {
        Ok(&self.crate_named("leasehold")?.version)
    }
}

impl Crate {
    fn read(package: &Value, workspace: &str) -> Result<Self> {
        let text = |key: &str| package[key].as_str().context(key.to_owned());
        let manifest = text("manifest_path")?.replace('\\', "/");
        let folder = manifest.trim_end_matches("Cargo.toml");
        let folder = folder.trim_start_matches(&workspace.replace('\\', "/"));
        Ok(Self {
            name: text("name")?.to_owned(),
            version: text("version")?.to_owned(),
            folder: folder.trim_matches('/').to_owned(),
            metadata: package.clone(),
        })
    }

    /// Returns the path of one of its files, seen from the root.
    pub(super) fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    pub(super) fn may_be_published(&self) -> bool {
        self.metadata["publish"].is_null()
    }

    /// Returns the path of its library, seen from its folder, if it has one.
    pub(super) fn library(&self) -> Option<String> {
        let targets = self.metadata["targets"].as_array()?;
        let is_library = |target: &&Value| {
            let kinds = target["kind"].as_array().into_iter().flatten();
            kinds
                .into_iter()
                .any(|kind| kind == "lib" || kind == "rlib")
        };
        let path = targets.iter().find(is_library)?["src_path"].as_str()?;
        let path = path.replace('\\', "/");
        let (_, inside) = path.rsplit_once(&format!("{}/", self.folder))?;
        Some(inside.to_owned())
    }
}
