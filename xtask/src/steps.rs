//! The steps of `cargo xtask test`.

use crate::bench;
use crate::npm;
use crate::run::Cmd;
use crate::schedule::Load;
use crate::setup::Need;

/// A step of the run.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// The command as one types it; only text between single quotes has spaces.
    pub(crate) line: &'static str,
    /// The folder, relative to the root; empty for the root itself.
    pub(crate) folder: &'static str,
    pub(crate) load: Load,
    pub(crate) needs: &'static [Need],
    /// The steps that must have ended before it begins, if they run at all.
    pub(crate) after: &'static [&'static str],
    /// The environment variables of the command.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// True if the step runs tests, whose results are counted.
    pub(crate) tests: bool,
}

impl Step {
    pub(crate) fn cmd(&self) -> Cmd {
        Cmd::line(self.line).at(self.folder).with_envs(self.env)
    }
}

/// A step without tests that runs in the root, and needs and awaits nothing.
pub(crate) const BARE: Step = Step {
    name: "",
    what: "",
    line: "",
    folder: "",
    load: Load::Builds,
    needs: &[],
    after: &[],
    env: &[],
    tests: false,
};

/// A step in which cargo compiles the packages of the workspace by clippy, which is the compiler with more lints.
/// `cargo clippy` sets the same variables, but builds nothing that runs: each dependency would be compiled once for
/// the lints and once for the tests. Commands with other variables build the workspace anew.
const LINTED: Step = Step {
    needs: &[Need::Clippy],
    env: &[
        ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"),
        // The arguments `-D warnings`, in the words of `cargo clippy`.
        (
            "CLIPPY_ARGS",
            "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
        ),
    ],
    ..BARE
};

/// A step that compiles the core with a single feature. It leaves out the tests: they run with all features,
/// and would compile their own dependencies seven times.
macro_rules! feature {
    ($feature:literal) => {
        Step {
            name: concat!("feature-", $feature),
            what: "the feature compiles without the others",
            line: concat!(
                "cargo check -p leasehold --locked --no-default-features --features ",
                $feature
            ),
            ..BARE
        }
    };
}

/// The command `cargo $what` for the whole workspace except this program, which `cargo xtask` compiles with features
/// of its own: among the others, its dependencies would have other features, and all would be compiled twice.
macro_rules! workspace {
    ($what:literal, $($args:tt)*) => {
        concat!("cargo ", $what, " --workspace --exclude xtask --locked ", $($args)*)
    };
}

/// A step that runs test binaries of the workspace, which the step `build` has built. It uses the features of
/// the whole workspace, since otherwise much would be compiled again. Without --no-fail-fast the first
/// failing binary would hide the results of the others.
macro_rules! suite {
    ($name:literal, $what:literal, $load:ident, [$($need:ident),*], $which:literal) => {
        Step {
            name: $name,
            what: $what,
            line: workspace!("test", "--no-fail-fast ", $which),
            load: Load::$load,
            needs: &[Need::Clippy, $(Need::$need),*],
            after: &["build"],
            tests: true,
            ..LINTED
        }
    };
}

const SPEC: Step = Step {
    name: "spec",
    what: "the specifications keep every promise, and TLC finds the fault of each control",
    line: "cargo xtask spec --quick",
    load: Load::Computes,
    needs: &[Need::Java, Need::Tlc, Need::Clippy],
    after: &["build", "package"],
    // Its traces are written by a test that was built so.
    ..LINTED
};

/// The steps, in the order in which they begin if they may. Those that build in `target/debug` come first, since a
/// test binary starts only when no other command builds there; the npm package and the longest suites are beside them.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        what: "the code is formatted",
        line: "cargo fmt --all --check",
        needs: &[Need::Rustfmt],
        ..BARE
    },
    Step {
        name: "fmt-bench",
        what: "the code that measures is formatted",
        line: "cargo fmt --all --check",
        folder: bench::FOLDER,
        needs: &[Need::Rustfmt],
        ..BARE
    },
    // Not --all-targets, which builds each example once more as if it had tests.
    Step {
        name: "build",
        what: "all tests can be built, without warnings",
        line: workspace!("test", "--lib --bins --tests --no-run"),
        ..LINTED
    },
    Step {
        name: "examples",
        what: "all examples and demonstrations can be built, without warnings",
        line: workspace!("build", "--examples"),
        after: &["build"],
        ..LINTED
    },
    Step {
        name: "clippy-core",
        what: "no warnings without the default features",
        line: "cargo clippy -p leasehold --no-default-features --locked -- -D warnings",
        needs: &[Need::Clippy],
        ..BARE
    },
    Step {
        name: "doc",
        what: "the documentation builds without warnings",
        line: workspace!(
            "doc",
            r#"--no-deps --config 'build.rustdocflags="-D warnings"'"#
        ),
        ..BARE
    },
    Step {
        name: "package",
        what: "the npm package can be made, and is small",
        line: "cargo xtask package",
        load: Load::Computes,
        needs: &[Need::Wasm, Need::Node, Need::NodePackages],
        ..BARE
    },
    Step {
        name: "node",
        what: "the tests of the npm package, and its examples",
        line: "node test/run.mjs",
        folder: npm::FOLDER,
        load: Load::Waits,
        needs: &[
            Need::Node,
            Need::Runtimes,
            Need::NodeExamples,
            Need::Redis,
            Need::Postgres,
            Need::MariaDb,
        ],
        after: &["package", "build"],
        tests: true,
        ..BARE
    },
    suite!(
        "integration",
        "locks on real servers",
        Waits,
        [Redis, Faketime],
        "--test=integration"
    ),
    suite!("cli", "the command", Waits, [Redis, Chromium], "--test=cli"),
    Step {
        // Half of the processes that contend are in JavaScript, once the package is there.
        after: &["build", "examples", "package"],
        ..suite!(
            "programs",
            "the examples and demonstrations",
            Waits,
            [Redis, Postgres, MariaDb],
            "--test=programs --test=topologies"
        )
    },
    Step {
        // Half of the clients are in JavaScript or run the command.
        after: &["build", "package"],
        ..suite!(
            "faults",
            "clients under faults keep every promise, and two judges refuse broken histories",
            Waits,
            [Redis, Node, Faketime, Go],
            "--test=faults"
        )
    },
    suite!(
        "loss",
        "a loss is told in time",
        Waits,
        [Redis],
        "--test=loss"
    ),
    suite!(
        "handoff",
        "the next in line is told in time",
        Waits,
        [Redis],
        "--test=handoff"
    ),
    suite!(
        "guards",
        "one conformance suite for every guard",
        Waits,
        [Redis, Postgres, MariaDb, Venv],
        "--test=gate --test=http --test=object --test=redis --test=redis_rs --test=sql"
    ),
    suite!(
        "differential",
        "servers do what the model does",
        Waits,
        [Redis],
        "--test=differential"
    ),
    suite!(
        "adapters",
        "locks by the clients of a program",
        Waits,
        [Redis],
        "--test=adapters"
    ),
    suite!(
        "scenarios",
        "the same stories on every store",
        Waits,
        [Redis],
        "--test=scenarios"
    ),
    Step {
        name: "costs",
        what: "no operation costs a tenth more than what was written down",
        line: "cargo xtask costs",
        load: Load::Computes,
        needs: &[Need::Redis, Need::Valgrind],
        after: &["build", "package"],
        ..BARE
    },
    suite!(
        "unit",
        "unit tests, and hostile bytes",
        Computes,
        [Redis],
        "--lib --bins --test=bytes"
    ),
    Step {
        name: "unit-xtask",
        what: "unit tests of the tasks of this repository, without warnings",
        line: "cargo test -p xtask --locked",
        tests: true,
        ..LINTED
    },
    suite!(
        "simulation",
        "random schedules keep every promise",
        Computes,
        [],
        "--test=simulation"
    ),
    suite!(
        "search",
        "small worlds keep every promise, whatever the order of events",
        Computes,
        [],
        "--test=search"
    ),
    Step {
        name: "doctest",
        what: "the examples in the documentation",
        line: workspace!("test", "--doc --no-fail-fast"),
        after: &["build"],
        tests: true,
        ..LINTED
    },
    Step {
        name: "links",
        what: "no link of a Markdown file is broken; the book's programs run in the steps `doctest` and `node`",
        line: "cargo xtask book --links-only",
        ..BARE
    },
    SPEC,
    Step {
        name: "node-types",
        what: "the TypeScript has no errors",
        line: "npm run --silent check",
        folder: npm::FOLDER,
        load: Load::Computes,
        needs: &[Need::Node],
        after: &["package"],
        ..BARE
    },
    Step {
        name: "node-package",
        what: "the packed npm package, installed elsewhere, in every runtime",
        line: "node test/run.mjs package",
        folder: npm::FOLDER,
        load: Load::Computes,
        needs: &[Need::Node, Need::Runtimes, Need::Chromium],
        after: &["package"],
        tests: true,
        ..BARE
    },
];

/// The steps of `--quick`, for daily work.
pub(crate) const QUICK: &[&str] = &[
    "fmt",
    "clippy",
    "clippy-xtask",
    "clippy-core",
    "wasm",
    "quick",
];

/// Further steps, which `--all` also runs: they recompile all dependencies for parts that rarely break, or
/// check what no promise depends on.
pub(crate) const MORE: &[Step] = &[
    feature!("native"),
    feature!("redis-rs"),
    feature!("sqlite"),
    feature!("postgres"),
    feature!("mysql"),
    feature!("object-store"),
    feature!("http"),
    feature!("cron"),
    feature!("metrics"),
    Step {
        name: "doc-xtask",
        what: "the documentation of this repository's tasks builds without warnings",
        line: r#"cargo doc -p xtask --no-deps --locked --config 'build.rustdocflags="-D warnings"'"#,
        ..BARE
    },
    Step {
        name: "book",
        what: "the book builds",
        line: "cargo xtask book",
        needs: &[Need::MdBook],
        ..BARE
    },
    Step {
        name: "cli-without-page",
        what: "the command compiles without its page",
        line: "cargo check -p leasehold-cli --no-default-features --locked",
        ..BARE
    },
    Step {
        name: "clients",
        what: "a program with the default features of every client compiles",
        line: "cargo check --manifest-path tests/clients/Cargo.toml --target-dir target --locked",
        ..BARE
    },
    Step {
        name: "oversell",
        what: "the first command of the README ends well",
        line: "cargo run --example oversell --locked",
        ..BARE
    },
    Step {
        name: "clippy-bench",
        what: "no warnings in the code that measures",
        line: "cargo clippy --workspace --all-targets --all-features --locked -- -D warnings",
        folder: bench::FOLDER,
        needs: &[Need::Clippy],
        ..BARE
    },
    Step {
        name: "test-bench",
        what: "unit tests of the code that measures",
        line: "cargo test --release --locked --no-fail-fast",
        folder: bench::FOLDER,
        load: Load::Computes,
        tests: true,
        ..BARE
    },
    Step {
        name: "portable",
        what: "the libraries build and pass their unit tests on every system",
        line: "cargo test -p leasehold -p leasehold-engine -p leasehold-observe -p leasehold-serve --lib --locked",
        load: Load::Computes,
        tests: true,
        ..BARE
    },
    Step {
        name: "schedules",
        what: "many more random schedules keep every promise",
        line: concat!(
            "env LEASEHOLD_SEEDS=20000 ",
            workspace!("test", "--test=simulation -- promise restart")
        ),
        load: Load::Computes,
        after: &["build"],
        tests: true,
        ..LINTED
    },
    Step {
        name: "spec-all",
        what: "the same with the instances that take longest, and with the figures of the book",
        line: "cargo xtask spec",
        ..SPEC
    },
    Step {
        name: "clippy",
        what: "no warnings, in any target",
        line: workspace!("clippy", "--all-targets -- -D warnings"),
        needs: &[Need::Clippy],
        ..BARE
    },
    Step {
        name: "clippy-xtask",
        what: "no warnings in the tasks of this repository",
        line: "cargo clippy -p xtask --all-targets --locked -- -D warnings",
        needs: &[Need::Clippy],
        ..BARE
    },
    Step {
        name: "wasm",
        what: "the engine compiles for WebAssembly",
        line: "cargo check -p leasehold-engine --target wasm32-unknown-unknown --locked",
        needs: &[Need::Wasm],
        ..BARE
    },
    Step {
        name: "quick",
        what: "unit tests, and the scenarios on a server and in memory",
        line: workspace!("test", "--lib --test scenarios --no-fail-fast"),
        load: Load::Waits,
        needs: &[Need::Redis, Need::Clippy],
        tests: true,
        ..LINTED
    },
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::{BARE, LINTED, MORE, QUICK, STEPS};
    use crate::run::root;
    use crate::setup::Need;

    #[test]
    fn names_are_unique() {
        let steps = || STEPS.iter().chain(MORE);
        let mut names: Vec<_> = steps().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), steps().count());
        assert!(QUICK.iter().all(|name| names.contains(name)));
    }

    /// Catches steps that would wait for one another for ever.
    #[test]
    fn a_step_waits_only_for_earlier_steps() {
        for (at, step) in STEPS.iter().enumerate() {
            let before = |name: &&str| STEPS[..at].iter().any(|other| other.name == *name);
            assert!(step.after.iter().all(before), "{}", step.name);
        }
    }

    /// Catches a version of clippy that reads its arguments in another form: its warnings would fail no step.
    #[test]
    fn a_warning_fails_a_build() {
        let folder = std::env::temp_dir().join(format!("xtask-lint-{}", std::process::id()));
        let file = folder.join("warned.rs");
        fs::create_dir_all(&folder).expect("it is new");
        fs::write(&file, "pub fn f(x: &[u8]) -> bool {\n    x.len() == 0\n}\n").expect("it is new");
        let compiles = |variables: &[(&str, &str)]| {
            let compile = Command::new("clippy-driver")
                .args(["rustc", "--crate-type=lib", "--emit=metadata", "--out-dir"])
                .args([&folder, &file])
                .env_remove("CLIPPY_ARGS")
                .envs(variables.iter().copied())
                .output();
            compile.expect("clippy is installed").status.success()
        };
        let (plain, linted) = (compiles(BARE.env), compiles(LINTED.env));
        fs::remove_dir_all(&folder).expect("it is there");
        assert!(plain && !linted, "{plain}, {linted}");
    }

    /// Catches a step whose compiler may be missing when it runs alone.
    #[test]
    fn a_step_with_lints_installs_clippy() {
        let mut linted = STEPS.iter().chain(MORE);
        assert!(linted.all(|step| step.env.is_empty() || step.needs.contains(&Need::Clippy)));
    }

    /// Catches a test binary that no step runs.
    #[test]
    fn each_test_binary_has_a_step() {
        for folder in [
            "tests",
            "tests/faults",
            "tests/guards",
            "tests/search",
            "bindings/cli",
        ] {
            let package = root().join(folder);
            let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("it can be read");
            let named = manifest.split("[[test]]\nname = \"").skip(1);
            let named = named.filter_map(|rest| rest.split('"').next());
            let mut binaries: Vec<_> = named.map(str::to_owned).collect();
            let mut files = fs::read_dir(package.join("tests")).into_iter().flatten();
            while let Some(file) = files.next().transpose().expect("it can be read") {
                let path = file.path().with_extension("");
                binaries.extend(
                    path.file_name()
                        .map(|name| name.to_string_lossy().into_owned()),
                );
            }
            assert!(!binaries.is_empty(), "{folder}");
            for binary in binaries {
                let which = format!("--test={binary}");
                let runs = STEPS
                    .iter()
                    .any(|step| step.line.split(' ').any(|word| word == which));
                assert!(runs, "no step runs {which} of {folder}");
            }
        }
    }
}
