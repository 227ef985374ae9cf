//! `leasehold cron`, and `leasehold run` with `--once` or `--every`: each tick runs once.

use std::collections::BTreeMap;
use std::fs;

use leasehold_tests::{RedisServer, eventually};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::program::{LIMIT, Output, Program, is_held, leasehold, on, output};

fn run(server: &RedisServer, args: &[&str], script: &str) -> Output {
    let command = ["--", "sh", "-c", script];
    let args = ["run", "report"].iter().chain(args).chain(&command);
    output(on(server, args))
}

#[tokio::test]
async fn a_tick_is_run_once_and_a_failed_one_again() {
    let server = RedisServer::start().await;
    let failed = run(&server, &["--once", "7"], "echo $LEASEHOLD_TICK; exit 3");
    assert_eq!(
        (failed.code, &*failed.stdout),
        (Some(3), "7\n"),
        "{failed:?}"
    );
    let first = run(&server, &["--once", "7"], "echo $LEASEHOLD_TICK");
    assert_eq!((first.code, &*first.stdout), (Some(0), "7\n"), "{first:?}");
    for tick in ["7", "6"] {
        let again = run(&server, &["--once", tick], "echo again");
        assert_eq!((again.code, &*again.stdout), (Some(76), ""), "{again:?}");
        assert_eq!(again.stderr, "", "cron would mail it");
    }
    let told = run(&server, &["--once", "7", "--json"], "echo again");
    assert!(told.stderr.contains("is completed"), "{told:?}");
    assert_eq!(run(&server, &["--once", "8"], "echo next").stdout, "next\n");
    assert!(!is_held(&server, "report").await);
}

#[tokio::test]
async fn a_period_is_run_once_on_whatever_machine_comes_first() {
    let server = RedisServer::start().await;
    let args = ["--every", "366d"];
    let first = run(&server, &args, "echo $((LEASEHOLD_TICK % 31622400000))");
    assert_eq!((first.code, &*first.stdout), (Some(0), "0\n"), "{first:?}");
    let again = run(&server, &args, "echo again");
    assert_eq!((again.code, &*again.stdout), (Some(76), ""), "{again:?}");
}

#[tokio::test]
async fn a_tick_that_runs_elsewhere_is_waited_for_or_not() {
    let server = RedisServer::start().await;
    let args = [
        "run",
        "report",
        "--once",
        "7",
        "--",
        "sh",
        "-c",
        "echo runs; read x",
    ];
    let mut program = Program::spawn(on(&server, args));
    program.line("runs");
    let busy = run(&server, &["--once", "7", "--no-wait"], "echo again");
    assert_eq!((busy.code, &*busy.stdout), (Some(75), ""), "{busy:?}");
    let mut waits = Program::spawn(on(&server, ["run", "report", "--once", "7", "--", "true"]));
    // The runner dies with its command, and the next one gets the tick.
    program.signal(Signal::SIGTERM);
    assert_eq!(program.code().await, Some(128 + 15));
    assert_eq!(waits.code().await, Some(0));
    assert_eq!(run(&server, &["--once", "7"], "echo again").code, Some(76));
}

#[tokio::test]
async fn each_tick_of_a_schedule_runs_on_one_machine() {
    let server = RedisServer::start().await;
    let folder = TempDir::new().expect("a folder");
    let record = folder.path().join("record");
    let start = |who: &str| {
        let script = format!("echo $LEASEHOLD_TICK {who} >> {}", record.display());
        let args = ["cron", "report", "@every 300ms", "--", "sh", "-c", &script];
        Program::spawn(on(&server, args))
    };
    let mut programs = [start("one"), start("two"), start("three")];
    let read = || fs::read_to_string(&record).unwrap_or_default();
    let enough = async || read().lines().count() >= 8;
    eventually(LIMIT, "eight ticks", enough).await;
    for program in &mut programs {
        program.signal(Signal::SIGTERM);
        program.code().await;
    }
    let mut ticks = BTreeMap::<String, u32>::new();
    for line in read().lines() {
        let tick = line.split(' ').next().unwrap_or_default();
        *ticks.entry(tick.to_owned()).or_default() += 1;
    }
    assert!(ticks.values().all(|times| *times == 1), "{ticks:?}");
    assert!(!is_held(&server, "report").await);
}

#[tokio::test]
async fn bad_input_is_refused_with_the_culprit() {
    let server = RedisServer::start().await;
    let cases: [(&[&str], i32, &str); 11] = [
        (&["run", "a", "--once", "0"], 64, "tick 0"),
        (&["run", "a", "--once", "-1"], 64, "-1"),
        (&["run", "a", "--once", "1", "--every", "1m"], 64, "--every"),
        (&["run", "a", "--every", "1ms"], 64, "period"),
        (&["run", "a", "--once", "1", "--owner", "me"], 64, "--owner"),
        (&["cron", "a", "61 * * * *"], 64, "61 * * * *"),
        (&["cron", "a", "@every 1"], 64, "1s or 1ms"),
        (&["cron", "a", "0 0 30 2 *"], 64, "never due"),
        (
            &["cron", "a", "* * * * *", "--time-zone", "Mars"],
            64,
            "Mars",
        ),
        (
            &["cron", "a", "* * * * *", "--missed", "some"],
            64,
            "all:10",
        ),
        (&["cron", "a", "*/5", "*"], 64, "SCHEDULE in quotes"),
    ];
    for (args, code, culprit) in cases {
        let ran = output(on(&server, args.iter().chain(&["--", "true"])));
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(culprit), "{args:?}: {ran:?}");
    }
    assert_eq!(
        output(on(&server, ["run", "a", "--", "true"])).code,
        Some(0)
    );
    let mixed = output(on(&server, ["run", "a", "--once", "1", "--", "true"]));
    assert_eq!(mixed.code, Some(78), "{mixed:?}");
    assert!(mixed.stderr.contains("used for a lock"), "{mixed:?}");
}

#[test]
fn a_command_that_does_not_exist_ends_the_service() {
    let args = [
        "cron",
        "a",
        "@every 20ms",
        "--url",
        "memory://",
        "--",
        "/nowhere",
    ];
    assert_eq!(output(leasehold(args)).code, Some(127));
}

/// Catches a help text that lists an option which the command refuses each time.
#[test]
fn the_help_of_cron_lists_only_what_it_takes() {
    let help = output(leasehold(["cron", "--help"]));
    assert!(help.stdout.contains("--at-most"), "{help:?}");
    for (option, value) in [("--owner", "me"), ("--at-least", "5s")] {
        assert!(!help.stdout.contains(option), "{help:?}");
        let args = [
            "cron",
            "report",
            "@every 1s",
            "--url",
            "memory://",
            option,
            value,
            "--",
            "true",
        ];
        let refused = output(leasehold(args));
        assert_eq!(refused.code, Some(64), "{refused:?}");
        assert!(refused.stderr.contains(option), "{refused:?}");
    }
}
