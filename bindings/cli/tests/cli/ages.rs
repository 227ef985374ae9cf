//! `--at-most` and `--at-least`: the bounds of a lease's age.

use std::time::{Duration, Instant};

use leasehold_tests::{RedisServer, eventually};

use crate::program::{LIMIT, Program, is_held, on, output};

#[tokio::test]
async fn a_command_ends_with_the_longest_time_of_its_lease() {
    let server = RedisServer::start().await;
    let run = ["run", "a", "--ttl", "1s", "--at-most", "2s", "--json", "--"];
    let endless = [
        "sh",
        "-c",
        "trap 'exit 9' TERM; while :; do sleep 0.05; done",
    ];
    let started = Instant::now();
    let mut program = Program::spawn(on(&server, run.into_iter().chain(endless)));
    let risk = program.error_line(r#"{"type":"atRisk""#);
    assert!(risk.contains(r#""code":"overheld""#), "{risk}");
    assert_eq!(program.code().await, Some(79));
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(1_500), "{took:?}");
    let errors = program.unread_errors().join("\n");
    assert!(
        errors.contains("held for the longest time allowed"),
        "{errors}"
    );
    assert!(!is_held(&server, "a").await, "the next has it at once");
}

#[tokio::test]
async fn the_next_leader_has_its_turn_after_the_longest_time() {
    let server = RedisServer::start().await;
    let hold = |who: &str| {
        let script = format!("trap 'exit 0' TERM; echo {who} leads; while :; do sleep 0.05; done");
        let hold = [
            "hold",
            "a",
            "--ttl",
            "1s",
            "--at-most",
            "1500ms",
            "--",
            "sh",
            "-c",
            &script,
        ];
        Program::spawn(on(&server, hold))
    };
    let mut first = hold("first");
    first.line("first leads");
    let mut second = hold("second");
    second.line("second leads");
    first.line("first leads");
    for leader in [&mut first, &mut second] {
        leader.signal(nix::sys::signal::Signal::SIGTERM);
        leader.code().await;
    }
}

#[tokio::test]
async fn the_name_stays_taken_for_the_shortest_time() {
    let server = RedisServer::start().await;
    let started = Instant::now();
    let run = [
        "run",
        "a",
        "--at-least",
        "1500ms",
        "--no-wait",
        "--",
        "true",
    ];
    let ran = output(on(&server, run));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    assert!(ran.took < Duration::from_millis(1_400), "{:?}", ran.took);
    let again = output(on(&server, run));
    if started.elapsed() < Duration::from_millis(1_400) {
        assert_eq!(again.code, Some(75), "{again:?}");
    }
    eventually(LIMIT, "a free name", async || !is_held(&server, "a").await).await;
    assert!(started.elapsed() >= Duration::from_millis(1_400));
}
