//! The products of a release: bills of materials, binaries, and the published packages.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde_json::Value;

use super::Outcome;
use super::tools::missing_tool;
use super::tree::Tree;
use crate::npm;
use crate::run::{Cmd, target};
use crate::setup::Need;

/// Where a release is published.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Registry {
    CratesIo,
    Npm,
    /// The binaries and bills of materials, as a release of the repository.
    Github,
}

/// Returns the folder of what a release publishes besides packages.
fn folder() -> Result<PathBuf> {
    let folder = target().join("release-artifacts");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Writes a bill of materials of each crate, with its default features, and of the npm package.
pub(super) fn sbom(tree: &Tree) -> Result<Outcome> {
    if let Some(outcome) = missing_tool("sbom") {
        return Ok(outcome);
    }
    let folder = folder()?;
    let read = |cmd: Cmd| -> Result<Value> {
        let printed = cmd.read()?;
        serde_json::from_str(&printed).with_context(|| format!("`{cmd}` printed no JSON"))
    };
    for one in tree.to_publish() {
        let sbom = Cmd::line("cargo sbom --output-format=cyclone_dx_json_1_6 --cargo-package");
        let mut bill = read(sbom.args([&one.name]))?;
        let used = Tree::used_by(&["-p", &one.name])?;
        ensure!(
            keep_used(&mut bill, &used),
            "the bill of {} has no components",
            one.name
        );
        fs::write(
            folder.join(format!("{}-{}.cdx.json", one.name, one.version)),
            bill.to_string(),
        )?;
    }
    let sbom = Cmd::line("npm sbom --sbom-format=cyclonedx --omit=dev --package-lock-only");
    let bill = read(sbom.at(npm::FOLDER))?;
    fs::write(
        folder.join(format!("npm-leasehold-{}.cdx.json", tree.version()?)),
        bill.to_string(),
    )?;
    Ok(Outcome::Passed(format!("(in {})", folder.display())))
}

/// Removes the components that only other crates of the workspace use, or other features. Returns true if some are
/// left.
pub(super) fn keep_used(bill: &mut Value, used: &BTreeSet<(String, String)>) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut left = BTreeSet::new();
    if let Some(components) = bill["components"].as_array_mut() {
        components.retain(|one| used.contains(&(text(&one["name"]), text(&one["version"]))));
        left.extend(components.iter().map(|one| text(&one["bom-ref"])));
    }
    let any = !left.is_empty();
    left.insert(text(&bill["metadata"]["component"]["bom-ref"]));
    if let Some(dependencies) = bill["dependencies"].as_array_mut() {
        dependencies.retain(|one| left.contains(&text(&one["ref"])));
        for one in dependencies {
            if let Some(on) = one["dependsOn"].as_array_mut() {
                on.retain(|one| left.contains(&text(one)));
            }
        }
    }
    any
}

/// Builds the command for a target, and packs it with its README and licenses.
pub(super) fn binary(tree: &Tree, triple: &str) -> Result<()> {
    if triple.ends_with("-linux-musl") {
        Need::Musl.ensure()?;
    }
    let compile = Cmd::line("cargo build --release --locked -p leasehold-cli --target");
    compile.args([triple]).run()?;
    let file = if triple.contains("-windows-") {
        "leasehold.exe"
    } else {
        "leasehold"
    };
    let name = format!("leasehold-{}-{triple}", tree.version()?);
    let (folder, built) = (folder()?, target().join(triple).join("release").join(file));
    let stage = folder.join(&name);
    fs::create_dir_all(&stage)?;
    fs::copy(&built, stage.join(file)).with_context(|| built.display().to_string())?;
    let cli = tree.root.join(&tree.crate_named("leasehold-cli")?.folder);
    for text in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(cli.join(text), stage.join(text)).with_context(|| text.to_owned())?;
    }
    let (archive, at) = (format!("{name}.tar.gz"), folder.to_string_lossy());
    let pack = Cmd::line("tar -czf").args([&archive, &name]).at(&at);
    pack.run()?;
    fs::remove_dir_all(&stage)?;
    println!("== release: {}", folder.join(archive).display());
    Ok(())
}

/// Publishes, if the release workflow asks for it at the tag of the version.
pub(super) fn publish(tree: &Tree, registry: Registry) -> Result<()> {
    let tag = format!("v{}", tree.version()?);
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("GITHUB_ACTIONS") != "true" || variable("GITHUB_REF_NAME") != tag {
        bail!("only the workflow release.yml publishes, at the tag {tag}; push that tag");
    }
    match registry {
        Registry::CratesIo => {
            let publish = Cmd::line("cargo publish --locked");
            publish.args(tree.selection()).run()
        }
        Registry::Npm => {
            let file = target().join(format!("npm/leasehold-{}.tgz", tree.version()?));
            let publish = Cmd::line("npm publish --access=public --provenance");
            publish.args([file.to_string_lossy()]).run()
        }
        Registry::Github => {
            let files = fs::read_dir(folder()?)?
                .map(|entry| Ok(entry?.path().to_string_lossy().into_owned()));
            let create = Cmd::line("gh release create --verify-tag '--notes=See CHANGELOG.md.'");
            let files = files.collect::<Result<Vec<_>>>()?;
            create.args([tag]).args(files).run()
        }
    }
}
