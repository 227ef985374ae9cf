//! The steps of `cargo xtask test`.

use crate::bench;
use crate::npm;
use crate::run::Cmd;
use crate::setup::Need;

/// One step of the run.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) cmd: Cmd<'static>,
    pub(crate) needs: &'static [Need],
    /// Whether it runs tests, whose results are counted.
    pub(crate) tests: bool,
}

/// The step that compiles the core with one of its features and no other. Not its tests: they run with all
/// features, and would compile seven times over what only they need.
macro_rules! feature {
    ($step:literal, $feature:literal) => {
        Step {
            name: $step,
            what: "the feature compiles without the others",
            cmd: Cmd::cargo(&[
                "check",
                "-p",
                "leasehold",
                "--no-default-features",
                "--features",
                $feature,
                "--locked",
            ]),
            needs: &[],
            tests: false,
        }
    };
}

/// The steps, in order: what is quick and fails often comes first.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        what: "the code is formatted",
        cmd: Cmd::cargo(&["fmt", "--all", "--check"]),
        needs: &[Need::Rustfmt],
        tests: false,
    },
    Step {
        name: "fmt-bench",
        what: "the code that measures is formatted",
        cmd: Cmd::cargo(&["fmt", "--all", "--check"]).at(bench::FOLDER),
        needs: &[Need::Rustfmt],
        tests: false,
    },
    Step {
        name: "clippy",
        what: "no warnings, in any target",
        cmd: Cmd::cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]),
        needs: &[Need::Clippy],
        tests: false,
    },
    Step {
        name: "clippy-core",
        what: "no warnings without the default features",
        cmd: Cmd::cargo(&[
            "clippy",
            "-p",
            "leasehold",
            "--no-default-features",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]),
        needs: &[Need::Clippy],
        tests: false,
    },
    Step {
        name: "wasm",
        what: "the engine compiles for WebAssembly",
        cmd: Cmd::cargo(&[
            "check",
            "-p",
            "leasehold-engine",
            "--target",
            "wasm32-unknown-unknown",
            "--locked",
        ]),
        needs: &[Need::Wasm],
        tests: false,
    },
    feature!("feature-native", "native"),
    feature!("feature-redis-rs", "redis-rs"),
    feature!("feature-sqlite", "sqlite"),
    feature!("feature-postgres", "postgres"),
    feature!("feature-mysql", "mysql"),
    feature!("feature-object-store", "object-store"),
    feature!("feature-http", "http"),
    feature!("feature-metrics", "metrics"),
    Step {
        name: "cli-without-page",
        what: "the command compiles without its page",
        cmd: Cmd::cargo(&[
            "check",
            "-p",
            "leasehold-cli",
            "--no-default-features",
            "--locked",
        ]),
        needs: &[],
        tests: false,
    },
    Step {
        name: "clients",
        what: "a program with the default features of every client compiles",
        cmd: Cmd::cargo(&[
            "check",
            "--manifest-path",
            "tests/clients/Cargo.toml",
            "--target-dir",
            "target",
            "--locked",
        ]),
        needs: &[],
        tests: false,
    },
    Step {
        name: "test",
        what: "unit, integration, differential and simulation tests",
        // Not --all-targets, which builds each example once more as if it had tests. And without --no-fail-fast the
        // first failing binary would hide the results of the others.
        cmd: Cmd::cargo(&[
            "test",
            "--workspace",
            "--lib",
            "--bins",
            "--tests",
            "--locked",
            "--no-fail-fast",
        ]),
        needs: &[
            Need::Redis,
            Need::Postgres,
            Need::MariaDb,
            Need::Venv,
            Need::Faketime,
            Need::Chromium,
        ],
        tests: true,
    },
    Step {
        name: "doctest",
        what: "the examples in the documentation",
        cmd: Cmd::cargo(&["test", "--workspace", "--doc", "--locked", "--no-fail-fast"]),
        needs: &[],
        tests: true,
    },
    Step {
        name: "doc",
        what: "the documentation builds without warnings",
        cmd: Cmd::cargo(&["doc", "--workspace", "--no-deps", "--locked"])
            .with_env(&[("RUSTDOCFLAGS", "-D warnings")]),
        needs: &[],
        tests: false,
    },
    Step {
        name: "costs",
        what: "no operation costs a tenth more than what was written down",
        cmd: Cmd::cargo(&["xtask", "costs"]),
        needs: &[Need::Redis, Need::Valgrind],
        tests: false,
    },
    Step {
        name: "package",
        what: "the npm package can be made, and is small",
        cmd: Cmd::cargo(&["xtask", "package"]),
        needs: &[Need::Wasm, Need::Node],
        tests: false,
    },
    Step {
        name: "node-types",
        what: "the TypeScript has no errors",
        cmd: Cmd::new("npm", &["run", "--silent", "check"]).at(npm::FOLDER),
        needs: &[Need::Node],
        tests: false,
    },
    Step {
        name: "node",
        what: "the tests of the npm package, and its examples",
        cmd: Cmd::new("node", &["test/run.mjs"]).at(npm::FOLDER),
        needs: &[
            Need::Node,
            Need::Runtimes,
            Need::NodeExamples,
            Need::Redis,
            Need::Postgres,
            Need::MariaDb,
        ],
        tests: true,
    },
    Step {
        name: "node-package",
        what: "the packed npm package, installed elsewhere, in every runtime",
        cmd: Cmd::new("node", &["test/run.mjs", "package"]).at(npm::FOLDER),
        needs: &[Need::Node, Need::Runtimes, Need::Chromium],
        tests: true,
    },
    Step {
        name: "oversell",
        what: "the first command of the README ends well",
        cmd: Cmd::cargo(&["run", "--example", "oversell", "--locked"]),
        needs: &[],
        tests: false,
    },
];

/// The steps of `--quick`, for daily work.
pub(crate) const QUICK: &[&str] = &["fmt", "clippy", "clippy-core", "wasm", "quick"];

/// Further steps. `--all` runs them, too: they check what no promise depends on.
pub(crate) const MORE: &[Step] = &[
    Step {
        name: "clippy-bench",
        what: "no warnings in the code that measures",
        cmd: Cmd::cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])
        .at(bench::FOLDER),
        needs: &[Need::Clippy],
        tests: false,
    },
    Step {
        name: "test-bench",
        what: "unit tests of the code that measures",
        cmd: Cmd::cargo(&["test", "--release", "--locked", "--no-fail-fast"]).at(bench::FOLDER),
        needs: &[],
        tests: true,
    },
    Step {
        name: "quick",
        what: "unit tests, and the scenarios on a server and in memory",
        cmd: Cmd::cargo(&[
            "test",
            "--workspace",
            "--lib",
            "--test",
            "scenarios",
            "--locked",
            "--no-fail-fast",
        ]),
        needs: &[Need::Redis],
        tests: true,
    },
];

#[cfg(test)]
mod tests {
    use super::{MORE, QUICK, STEPS};

    #[test]
    fn names_are_unique() {
        let steps = || STEPS.iter().chain(MORE);
        let mut names: Vec<_> = steps().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), steps().count());
        assert!(QUICK.iter().all(|name| names.contains(name)));
    }
}
