//! The repository's tasks. `cargo xtask --help` lists them.

mod audit;
mod bench;
mod book;
mod counts;
mod faults;
mod glue;
mod man;
mod markdown;
mod mutants;
mod npm;
mod package;
mod release;
mod run;
mod schedule;
mod servers;
mod setup;
mod spec;
mod steps;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The repository's tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every check and every test, installing what they need first.
    ///
    /// Needs Node 20 or newer with npm, redis-server 7.0 or newer, PostgreSQL, MariaDB, Python's
    /// venv, valgrind, libfaketime, Chromium, Java, Maven, Go, rustfmt, clippy and the standard library for
    /// wasm32-unknown-unknown. What is missing is installed where that is possible (apt-get as
    /// root, rustup, npm); otherwise the command to run is printed.
    ///
    /// The last line is always `N passed, N failed, N skipped`: the tests of all steps together. A run of
    /// test steps in which no test ran fails.
    Test(test::Options),
    /// Check the dependencies with cargo-deny: bans, licences, sources, advisories.
    ///
    /// Needs cargo-deny, 0.20 or newer: `cargo install --locked cargo-deny`; and git. Only the
    /// advisories need the network. If their database cannot be fetched that is said, and is no
    /// failure unless `--require-advisories` is given.
    Audit(audit::Options),
    /// Build the book, in target/book, and check the links of every Markdown file.
    ///
    /// Needs mdBook, which is installed in target/tools. External links are checked for their form only.
    Book {
        /// Only check the links, without mdBook.
        #[arg(long)]
        links_only: bool,
    },
    /// Make the npm package: target/npm/leasehold-VERSION.tgz.
    ///
    /// Needs Node 20 or newer with npm, and the standard library for wasm32-unknown-unknown.
    Package,
    /// Write the manual pages of the command `leasehold`, into target/man.
    Man,
    /// Check that a version can be published: `--dry-run`.
    ///
    /// Each check has a name and prints its result; the faults follow at the end, each with what to do. What lacks
    /// its tool is named as not run, and fails only with `--strict`. Needs rustup, git, and Node with npm; and for
    /// some checks cargo-public-api, cargo-semver-checks and cargo-sbom: `cargo install --locked NAME`.
    ///
    /// The workflow release.yml publishes, by trusted publishing.
    Release(release::Mode),
    /// Count what an operation costs: instructions of the server, the engine and the codec, commands,
    /// allocations. Fails if a figure is more than 10 % above tests/bench/costs/baseline.json.
    ///
    /// Needs valgrind and redis-server.
    Costs {
        /// Write the figures down, for later runs to be compared with.
        #[arg(long)]
        write: bool,
    },
    /// Check the TLA+ specifications in spec/ with TLC, and that TLC finds the fault of each negative control.
    ///
    /// Needs Java 17 or newer, and Maven, which fetches TLC into target/tools. The book's page *Specification* lists
    /// the instances. Output and configuration of each are in target/spec/NAME.
    Spec(spec::Options),
    /// Inject faults into real servers and clients, and have two judges check what the clients saw: `--help` lists the
    /// options.
    ///
    /// Needs redis-server, Node with npm, libfaketime and Go, which fetches Porcupine. Histories and the report are in
    /// target/faults. Ctrl-C ends all processes.
    #[command(disable_help_flag = true)]
    Faults {
        /// The options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Break the code in small ways, one at a time, in a copy of the repository, and check that a test notices.
    ///
    /// The mutants are in tests/mutants. All of them take some two hours, and need what `test` needs; the copy and what
    /// is built there are in target/mutants.
    Mutants(mutants::Options),
    /// Run the native tests on other servers that speak Redis, and print a table of what failed.
    ///
    /// Not a part of `test`: nothing is installed or fetched. Build or install the servers yourself,
    /// and name their programs, which have to take the arguments of redis-server.
    Servers(servers::Options),
    /// Measure what the lock costs, on servers of its own, in release mode: `--help` lists the benchmarks.
    #[command(disable_help_flag = true)]
    Bench {
        /// The benchmark and its options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test(options) => return test::main(&options),
        Task::Audit(options) => audit::main(&options),
        Task::Book { links_only } => book::main(links_only),
        Task::Package => package::main(),
        Task::Release(mode) => release::main(&mode),
        Task::Man => man::main(),
        Task::Costs { write } => bench::costs(write),
        Task::Spec(options) => spec::main(&options),
        Task::Faults { args } => faults::main(&args),
        Task::Mutants(options) => mutants::main(&options),
        Task::Servers(options) => servers::main(&options),
        Task::Bench { args } => bench::main(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
