//! The sides that are programs of their own, by language, and how these programs are built.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// All sides of one language.
struct Language {
    name: &'static str,
    /// Builds the program. Returns its command without port and side.
    make: fn() -> Result<Vec<String>>,
    /// The side that the others are compared with.
    base: &'static str,
    sides: &'static [Side],
}

struct Side {
    name: &'static str,
    /// The side's name in the program.
    argument: &'static str,
    /// True if it differs from another side only where callers wait.
    waits_only: bool,
}

/// A side whose program could be built.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) language: &'static str,
    pub(crate) base: &'static str,
    /// The program and its first arguments, which the ports of the servers and `argument` follow.
    pub(crate) command: Vec<String>,
    pub(crate) argument: &'static str,
    pub(crate) waits_only: bool,
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

/// The argument with which this program is a side in Rust.
pub(crate) const PEER: &str = "peer";
/// The names of languages.
pub(crate) const RUST: &str = "Rust";
pub(crate) const NODE: &str = "Node";
const IN_RUST: &str = "leasehold";
pub(crate) const IN_NODE: &str = "leasehold on ioredis";
pub(crate) const REDLOCK: &str = "redlock";
pub(crate) const REDSYNC: &str = "redsync";

const LANGUAGES: &[Language] = &[
    Language {
        name: RUST,
        make: rust,
        base: IN_RUST,
        sides: &[
            side(IN_RUST, "leasehold"),
            side("leasehold on redis-rs", "leasehold-redis-rs"),
            side("SET NX + CAD on fred", "fred"),
            side("SET NX + INCR + CAD on fred", "fred-tokens"),
            side("SET NX + CAD on redis-rs", "redis-rs"),
            side("rslock", "rslock"),
            waits("rslock, retry 1 ms", "rslock-tuned"),
        ],
    },
    Language {
        name: NODE,
        make: node,
        base: IN_NODE,
        sides: &[
            side(IN_NODE, "leasehold"),
            side("leasehold by URL", "leasehold by URL"),
            side("leasehold on node-redis", "leasehold, node-redis"),
            side("SET NX + CAD on ioredis", "bare SET NX"),
            side(REDLOCK, "redlock 5 beta"),
            side("redis-semaphore", "redis-semaphore"),
        ],
    },
    Language {
        name: "Java",
        make: java,
        base: IN_RUST,
        sides: &[
            side("Redisson RLock", "RLock"),
            side("Redisson RFairLock", "RFairLock"),
            side("Redisson RFencedLock", "RFencedLock"),
        ],
    },
    Language {
        name: "Go",
        make: go,
        base: IN_RUST,
        sides: &[
            side("rueidislock", "rueidislock"),
            side("rueidislock, 1 key", "rueidislock-one-key"),
            side(REDSYNC, "redsync"),
            waits("redsync, retry 1 ms", "redsync-tuned"),
            side("redislock", "redislock"),
            waits("redislock, retry 1 ms", "redislock-tuned"),
        ],
    },
    Language {
        name: "Python",
        make: python,
        base: IN_RUST,
        sides: &[
            side("redis-py Lock", "redis-py"),
            waits("redis-py Lock, retry 1 ms", "redis-py-tuned"),
        ],
    },
];

/// Returns the languages of `only` and those that they are compared with, or all if `only` is empty.
pub(crate) fn chosen(only: &[String]) -> Result<Vec<&'static str>> {
    let mut chosen = Vec::new();
    for wanted in only {
        let is = |language: &&Language| language.name.eq_ignore_ascii_case(wanted);
        let language = LANGUAGES.iter().find(is);
        let language = language.ok_or_else(|| format!("there are no peers in {wanted:?}"))?;
        let has_base =
            |other: &&Language| other.sides.iter().any(|side| side.name == language.base);
        chosen.push(language.name);
        chosen.extend(LANGUAGES.iter().find(has_base).map(|other| other.name));
    }
    if only.is_empty() {
        chosen.extend(LANGUAGES.iter().map(|language| language.name));
    }
    Ok(chosen)
}

/// Builds the programs of these languages. Returns the sides whose programs could be built, and the reasons
/// for the others.
pub(crate) fn make(languages: &[&str]) -> (Vec<Program>, Vec<String>) {
    let (mut made, mut skipped) = (Vec::new(), Vec::new());
    let is_wanted = |language: &&Language| languages.contains(&language.name);
    for language in LANGUAGES.iter().filter(is_wanted) {
        println!("== peers: {}", language.name);
        match (language.make)() {
            Ok(command) => made.extend(language.sides.iter().map(|side| Program {
                name: side.name,
                language: language.name,
                base: language.base,
                command: command.clone(),
                argument: side.argument,
                waits_only: side.waits_only,
            })),
            Err(error) => {
                let names: Vec<_> = language.sides.iter().map(|side| side.name).collect();
                let what = format!("{} in {}, because {error}", names.join(", "), language.name);
                println!("!! NOT MEASURED: {what}");
                skipped.push(what);
            }
        }
    }
    (made, skipped)
}

fn rust() -> Result<Vec<String>> {
    Ok(vec![text(&std::env::current_exe()?), PEER.to_owned()])
}

fn node() -> Result<Vec<String>> {
    run("cargo", &["xtask", "package"], "")?;
    run(
        "npm",
        &["ci", "--no-audit", "--no-fund"],
        "tests/bench/node",
    )?;
    let program = root().join("tests/bench/node/peer.mjs");
    Ok(vec!["node".to_owned(), text(&program)])
}

fn java() -> Result<Vec<String>> {
    run(
        "mvn",
        &["--quiet", "--batch-mode", "compile"],
        "tests/bench/peers/java",
    )?;
    // The folder that `pom.xml` names.
    let path = format!("{0}/classes:{0}/dependency/*", text(&built("java")));
    Ok(["java", "-cp", &path, "Peer"].map(str::to_owned).to_vec())
}

fn go() -> Result<Vec<String>> {
    let program = text(&built("go"));
    run(
        "go",
        &["build", "-mod=readonly", "-o", &program, "."],
        "tests/bench/peers/go",
    )?;
    Ok(vec![program])
}

fn python() -> Result<Vec<String>> {
    let folder = text(&built("python"));
    run("python3", &["-m", "venv", &folder], "")?;
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
    run(&program, &install, "tests/bench/peers/python")?;
    let peer = root().join("tests/bench/peers/python/peer.py");
    Ok(vec![program, text(&peer)])
}

/// Runs a program in a folder of the repository, with its output on this terminal.
fn run(program: &str, args: &[&str], folder: &str) -> Result<()> {
    output(
        Command::new(program).args(args).stdout(Stdio::inherit()),
        folder,
    )
    .map(drop)
}

/// Runs a command in a folder of the repository, with its errors on this terminal. Returns its output.
pub(crate) fn output(command: &mut Command, folder: &str) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    // Build scripts such as ring's read these variables, and would run again.
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    let output = command
        .current_dir(root().join(folder))
        .stderr(Stdio::inherit())
        .output();
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{program} is missing"),
        _ => format!("starting {program}: {error}"),
    })?;
    if !output.status.success() {
        return Err(format!("{program} ended with {}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2);
    root.expect("this package is two folders deep").to_owned()
}

/// Returns the folder in which a language's program is built.
fn built(language: &str) -> PathBuf {
    root().join("target/peers").join(language)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{LANGUAGES, chosen, run};

    #[test]
    fn a_missing_toolchain_is_named() {
        let error = run("no-such-program", &[], "").expect_err("the program does not exist");
        assert_eq!(error.to_string(), "no-such-program is missing");
    }

    #[test]
    fn languages_are_chosen_with_their_bases() {
        let chosen =
            |only: &[&str]| chosen(&only.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        assert_eq!(chosen(&["go"]).expect("there is Go"), ["Go", "Rust"]);
        assert_eq!(chosen(&[]).expect("all").len(), LANGUAGES.len());
        assert!(chosen(&["Cobol"]).is_err());
    }

    /// Catches a misspelled base, which would leave out its ratios.
    #[test]
    fn each_base_is_a_side_and_each_name_is_one_side() {
        let sides = LANGUAGES.iter().flat_map(|language| language.sides);
        let mut names: Vec<_> = sides.map(|side| side.name).collect();
        let is_side = |language: &super::Language| names.contains(&language.base);
        assert!(LANGUAGES.iter().all(is_side));
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
