//! `cargo xtask servers`: runs the tests on other servers that speak Redis, and prints the differences.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::run::{Cmd, target};

/// The servers, and the tests to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Programs that take the arguments of redis-server, such as a valkey-server of your own.
    #[arg(required_unless_present = "image")]
    programs: Vec<String>,
    /// A container image with such a program, such as redis:8.2. Docker copies the program out of it.
    #[arg(long)]
    image: Vec<String>,
    /// Only run tests with this in their name; may be given several times.
    #[arg(long)]
    only: Vec<String>,
}

/// The results of the tests on one server.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: u64,
    failed: Vec<String>,
}

/// The requirements of a server: it behaves like the model, and has all that the native lock needs.
const SUITES: &str = "cargo test --no-fail-fast --locked --package=leasehold-tests --test=differential \
                      --test=integration -- --test-threads=2";

/// Runs the tests on each server, and prints a table. Fails if a test failed.
pub(crate) fn main(options: &Options) -> Result<()> {
    let mut table = "| server | passed | failed |\n|---|---|---|\n".to_owned();
    let mut all_passed = true;
    let from_images = options.image.iter().map(|image| copied(image));
    let from_images = from_images.collect::<Result<Vec<_>>>()?;
    for program in options.programs.iter().chain(&from_images) {
        let version = Cmd::new(program).args(["--version"]).probe();
        let version = version.with_context(|| format!("{program} does not print its version"))?;
        println!("== servers: {program}: {}", version.trim());
        let outcome = tested(program, &options.only);
        ensure!(outcome.passed > 0, "no test ran on {program}");
        all_passed &= outcome.failed.is_empty();
        let failed = match &*outcome.failed {
            [] => "none".to_owned(),
            failed => format!("`{}`", failed.join("`, `")),
        };
        let server = named(&version);
        writeln!(table, "| {server} | {} | {failed} |", outcome.passed)?;
    }
    println!("\n{table}");
    ensure!(all_passed, "some tests failed");
    Ok(())
}

/// Copies the server out of an image into target/servers, and returns its path.
fn copied(image: &str) -> Result<String> {
    let is_valkey = image.contains("valkey");
    let name = if is_valkey {
        "valkey-server"
    } else {
        "redis-server"
    };
    let folder = target()
        .join("servers")
        .join(image.replace(['/', ':'], "-"));
    fs::create_dir_all(&folder)?;
    let program = folder.join(name).to_string_lossy().into_owned();
    let container = Cmd::line("docker create").args([image]).read()?;
    let from = format!("{}:/usr/local/bin/{name}", container.trim());
    let copy = Cmd::line("docker cp --follow-link");
    let copied = copy.args([&from, &program]).run();
    Cmd::line("docker rm").args([container.trim()]).run()?;
    copied.map(|()| program)
}

fn tested(program: &str, only: &[String]) -> Outcome {
    let suites = Cmd::line(SUITES).args(only);
    let suites = suites.with_env("LEASEHOLD_REDIS_SERVER", program);
    let mut outcome = Outcome::default();
    // Failing tests are a result here, not an error.
    let ran = suites.run_and_read(|line| {
        print!("{line}");
        outcome.read(line);
    });
    if let Err(error) = ran {
        println!("== servers: {error:#}");
    }
    outcome
}

/// Returns the name for a version: `Redis 7.2.6` for `Redis server v=7.2.6 sha=…`.
fn named(version: &str) -> String {
    let mut words = version.split_whitespace();
    let name = words.next().unwrap_or_default();
    let number = words.find_map(|word| word.strip_prefix("v="));
    format!("{name} {}", number.unwrap_or_default())
}

impl Outcome {
    fn read(&mut self, line: &str) {
        let Some(("test", rest)) = line.trim().split_once(' ') else {
            return;
        };
        match rest.split_once(" ... ") {
            Some((_, "ok")) => self.passed += 1,
            Some((name, "FAILED")) => self.failed.push(name.to_owned()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a failure that is missing in the table.
    #[test]
    fn passed_and_failed_tests_are_read() {
        let mut outcome = Outcome::default();
        let lines = [
            "running 3 tests\n",
            "test cancel::a ... ok\n",
            "test rights::b ... FAILED\n",
            "test c ... ignored\n",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored\n",
        ];
        for line in lines {
            outcome.read(line);
        }
        let failed = vec!["rights::b".to_owned()];
        assert_eq!(outcome, Outcome { passed: 1, failed });
    }

    #[test]
    fn a_server_is_named_by_its_version() {
        let version = "Redis server v=7.2.6 sha=00000000:0 malloc=libc bits=64 build=1";
        assert_eq!(named(version), "Redis 7.2.6");
        let version = "Valkey server v=8.0.1 sha=00000000:0 malloc=libc bits=64";
        assert_eq!(named(version), "Valkey 8.0.1");
    }
}
