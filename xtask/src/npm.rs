//! Installation of npm packages.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::{Cmd, root};

/// The npm package, relative to the root of the repository.
pub(crate) const FOLDER: &str = "bindings/node";

/// The runtimes that test the packed package, in a folder of their own because they are large.
pub(crate) const RUNTIMES: &str = "bindings/node/test/package";

/// The example programs.
pub(crate) const EXAMPLES: &str = "examples/node";

/// Installs the packages of a folder's lock file unless they are installed already.
pub(crate) fn install(folder: &'static str) -> Result<()> {
    let path = root().join(folder);
    let lock = read(&path.join("package-lock.json")).context(path.display().to_string())?;
    // npm's own list of the installed packages.
    let installed = read(&path.join("node_modules/.package-lock.json")).unwrap_or_default();
    if is_installed(&lock, &installed) {
        return Ok(());
    }
    // Where SQLite's binary cannot be downloaded, it is compiled. Optimizing that takes longer than its tests.
    let cmd = Cmd::line("npm ci --no-audit --no-fund").at(folder);
    let cmd = cmd.with_envs(&[("CFLAGS", "-O0"), ("CXXFLAGS", "-O0")]);
    println!("== npm: {cmd}");
    cmd.run()
}

fn read(path: &Path) -> Result<Value> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Returns true if every package is installed in its version. Optional ones, which some platforms lack, do
/// not count.
fn is_installed(lock: &Value, installed: &Value) -> bool {
    let Some(packages) = lock["packages"].as_object() else {
        return false;
    };
    packages
        .iter()
        .filter(|(place, package)| !place.is_empty() && package["optional"] != true)
        .all(|(place, package)| installed["packages"][place]["version"] == package["version"])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::is_installed;

    #[test]
    fn versions_are_compared_and_other_platforms_ignored() {
        let lock = json!({ "packages": {
            "": { "name": "leasehold" },
            "node_modules/a": { "version": "1.0.0" },
            "node_modules/of-windows": { "version": "2.0.0", "optional": true },
        }});
        let with =
            |version: &str| json!({ "packages": { "node_modules/a": { "version": version } } });
        assert!(is_installed(&lock, &with("1.0.0")));
        assert!(!is_installed(&lock, &with("1.0.1")));
        assert!(!is_installed(&lock, &Value::Null));
        assert!(!is_installed(&Value::Null, &with("1.0.0")));
    }
}
