//! The peers that `cargo xtask bench report` measures: which there are, and how their programs are made.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::npm;
use crate::package;
use crate::run::{Cmd, root, target};

/// Their programs, seen from the root of the repository.
const FOLDER: &str = "tests/peers";
pub(crate) const NODE: &str = "bindings/node/bench";

/// All sides of one language.
struct Language {
    name: &'static str,
    /// Makes the program, and returns its command without port and side.
    make: fn() -> Result<Vec<String>>,
    /// What these sides are compared with.
    base: &'static str,
    sides: &'static [Side],
}

struct Side {
    name: &'static str,
    /// As the program knows it.
    argument: &'static str,
    /// Whether it differs from another one only where callers wait.
    waits_only: bool,
}

const fn side(name: &'static str, argument: &'static str) -> Side {
    Side {
        name,
        argument,
        waits_only: false,
    }
}

const fn waits(name: &'static str, argument: &'static str) -> Side {
    Side {
        name,
        argument,
        waits_only: true,
    }
}

const RUST: &str = "leasehold";
const IN_NODE: &str = "leasehold on ioredis";

const LANGUAGES: &[Language] = &[
    Language {
        name: "Rust",
        make: rust,
        base: RUST,
        sides: &[
            side(RUST, "leasehold"),
            side("SET NX + CAD on fred", "fred"),
            side("SET NX + CAD on redis-rs", "redis-rs"),
            side("rslock", "rslock"),
            waits("rslock, retry 1 ms", "rslock-tuned"),
        ],
    },
    Language {
        name: "Node",
        make: node,
        base: IN_NODE,
        sides: &[
            side(IN_NODE, "leasehold"),
            side("leasehold on node-redis", "leasehold, node-redis"),
            side("SET NX + CAD on ioredis", "bare SET NX"),
            side("redlock", "redlock 5 beta"),
            side("redis-semaphore", "redis-semaphore"),
        ],
    },
    Language {
        name: "Java",
        make: java,
        base: RUST,
        sides: &[
            side("Redisson RLock", "RLock"),
            side("Redisson RFairLock", "RFairLock"),
            side("Redisson RFencedLock", "RFencedLock"),
        ],
    },
    Language {
        name: "Go",
        make: go,
        base: RUST,
        sides: &[
            side("rueidislock", "rueidislock"),
            side("rueidislock, 1 key", "rueidislock-one-key"),
            side("redsync", "redsync"),
            waits("redsync, retry 1 ms", "redsync-tuned"),
            side("redislock", "redislock"),
            waits("redislock, retry 1 ms", "redislock-tuned"),
        ],
    },
    Language {
        name: "Python",
        make: python,
        base: RUST,
        sides: &[
            side("redis-py Lock", "redis-py"),
            waits("redis-py Lock, retry 1 ms", "redis-py-tuned"),
        ],
    },
];

/// The sides whose programs could be made, as the plan of the report has them; and why others could not.
pub(crate) fn make_all() -> (Vec<Value>, Vec<String>) {
    let (mut made, mut skipped) = (Vec::new(), Vec::new());
    for language in LANGUAGES {
        let Language {
            name, base, sides, ..
        } = language;
        println!("== peers: {name}");
        let command = match (language.make)() {
            Ok(command) => command,
            Err(error) => {
                let names: Vec<_> = sides.iter().map(|side| side.name).collect();
                let what = format!("{} in {name}, because {error:#}", names.join(", "));
                println!("!! NOT MEASURED: {what}");
                skipped.push(what);
                continue;
            }
        };
        for side in *sides {
            let mut command = command.clone();
            command.extend(["{port}".to_owned(), side.argument.to_owned()]);
            made.push(json!({
                "name": side.name,
                "language": name,
                "base": base,
                "command": command,
                "waits_only": side.waits_only,
            }));
        }
    }
    (made, skipped)
}

/// The programs of the peers that know several independent servers, as options of the benchmark. Those that
/// cannot be made are left out, and it says so.
pub(crate) fn of_several_servers() -> Vec<String> {
    let made = [("--node", node()), ("--go", go())].map(|(option, command)| match command {
        Ok(command) => Some([option.to_owned(), command.last()?.clone()]),
        Err(error) => {
            println!("!! {option}: {error:#}");
            None
        }
    });
    made.into_iter().flatten().flatten().collect()
}

fn rust() -> Result<Vec<String>> {
    let folder = built("rust");
    let to = text(&folder);
    let build = ["build", "--release", "--locked", "--target-dir", &*to];
    Cmd::cargo(&build).at("tests/peers/rust").run()?;
    Ok(vec![text(&folder.join("release/leasehold-peers"))])
}

fn node() -> Result<Vec<String>> {
    package::main()?;
    npm::install(NODE)?;
    let program = root().join(NODE).join("peer.mjs");
    Ok(vec!["node".to_owned(), text(&program)])
}

fn java() -> Result<Vec<String>> {
    present("java", "-version")?;
    present("mvn", "-version")?;
    let build = ["--quiet", "--batch-mode", "compile"];
    Cmd::new("mvn", &build).at("tests/peers/java").run()?;
    // The folder that `pom.xml` names.
    let folder = root().join("target/peers/java");
    let path = format!("{0}/classes:{0}/dependency/*", text(&folder));
    Ok(["java", "-cp", &path, "Peer"].map(str::to_owned).to_vec())
}

fn go() -> Result<Vec<String>> {
    present("go", "version")?;
    let program = text(&built("go"));
    let build = ["build", "-mod=readonly", "-o", &program, "."];
    Cmd::new("go", &build).at("tests/peers/go").run()?;
    Ok(vec![program])
}

fn python() -> Result<Vec<String>> {
    present("python3", "--version")?;
    let folder = text(&built("python"));
    let make = ["-m", "venv", &folder];
    Cmd::new("python3", &make).run()?;
    let program = format!("{folder}/bin/python");
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-r",
        "requirements.txt",
    ];
    Cmd::new(&program, &install)
        .at("tests/peers/python")
        .run()?;
    let peer = root().join(FOLDER).join("python/peer.py");
    Ok(vec![program, text(&peer)])
}

fn present(program: &str, version: &str) -> Result<()> {
    let found = Cmd::new(program, &[version]).probe();
    found
        .map(drop)
        .with_context(|| format!("{program} is missing"))
}

/// Where the program of a language is made.
fn built(language: &str) -> PathBuf {
    target().join("peers").join(language)
}

fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{LANGUAGES, present};

    #[test]
    fn a_missing_toolchain_is_named() {
        let error = present("no-such-program", "version").expect_err("there is none");
        assert_eq!(error.to_string(), "no-such-program is missing");
    }

    /// A misspelt base would leave its ratios out.
    #[test]
    fn each_base_is_a_side_and_each_name_is_one_side() {
        let names: Vec<_> = LANGUAGES
            .iter()
            .flat_map(|language| language.sides)
            .collect();
        let mut names: Vec<_> = names.iter().map(|side| side.name).collect();
        assert!(
            LANGUAGES
                .iter()
                .all(|language| names.contains(&language.base))
        );
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
