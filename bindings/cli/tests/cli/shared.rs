//! Shared names: `leasehold run` with `--slots`, `--read` and `--write`, `leasehold resize`, and how holders are shown.

use leasehold_tests::{RedisServer, eventually};
use nix::sys::signal::Signal;

use crate::program::{LIMIT, Output, Program, on, output};

/// Runs a command that prints its part of a shared name, and then holds it until its standard input is closed.
fn hold(server: &RedisServer, name: &str, part: &[&str]) -> (Program, String) {
    let script = "echo part $LEASEHOLD_RESOURCE $LEASEHOLD_SLOT $LEASEHOLD_GENERATION; cat";
    let (begin, end) = (
        ["run", name, "--owner", "worker-7"],
        ["--", "sh", "-c", script],
    );
    let args = begin.iter().chain(part).chain(&end);
    let holder = Program::spawn(on(server, args));
    let line = holder.line("part ");
    (holder, line)
}

fn run(server: &RedisServer, args: &[&str]) -> Output {
    output(on(server, args))
}

fn ok(server: &RedisServer, args: &[&str]) -> String {
    let ran = run(server, args);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    ran.stdout
}

/// Waits until somebody waits for the name.
async fn in_line(server: &RedisServer, name: &str) {
    let waits = async || {
        ok(server, &["inspect", name])
            .contains("  waiting  1\n")
            .then_some(())
    };
    eventually(LIMIT, "a waiter", waits).await;
}

/// Catches a third run, one with another's slot, one that does not end with its command, and a resize without effect.
#[tokio::test]
async fn as_many_run_as_there_are_slots() {
    let server = RedisServer::start().await;
    let (mut first, part) = hold(&server, "render", &["--slots", "2"]);
    assert_eq!(part.trim_end(), "render#0 0");
    let (_second, part) = hold(&server, "render", &["--slots", "2"]);
    assert_eq!(part.trim_end(), "render#1 1");
    let third = ["run", "render", "--slots", "2", "--no-wait", "--", "true"];
    let busy = run(&server, &third);
    assert_eq!(busy.code, Some(75), "{busy:?}");
    let listed = ok(&server, &["list"]);
    assert!(listed.contains("2 of 2 slots"), "{listed}");
    let told = ok(&server, &["inspect", "render"]);
    assert!(
        told.starts_with("render is held: 2 of 2 slots\n  capacity 2, epoch 1\n"),
        "{told}"
    );
    assert!(told.contains("  slot 1 by worker-7, token "), "{told}");
    let resized = ok(&server, &["resize", "render", "3", "--json"]);
    assert_eq!(
        resized,
        "{\"name\":\"render\",\"capacity\":3,\"epoch\":2}\n"
    );
    let ran = run(&server, &third);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stderr.contains("capacity 3 at the store, not 2"),
        "{ran:?}"
    );
    first.close_stdin();
    assert_eq!(first.code().await, Some(0));
    let (_next, part) = hold(&server, "render", &["--slots", "3"]);
    assert_eq!(part.trim_end(), "render#0 0", "the lowest free slot");
}

/// Catches a weight that is not taken, and one whose slots the command does not learn.
#[tokio::test]
async fn a_run_takes_as_many_slots_as_its_weight() {
    let server = RedisServer::start().await;
    let script = "echo slots $LEASEHOLD_SLOTS lowest $LEASEHOLD_SLOT";
    let heavy = [
        "render",
        "--slots",
        "3",
        "--weight",
        "2",
        "--no-wait",
        "--",
        "sh",
        "-c",
        script,
    ];
    let heavy: Vec<_> = ["run"].into_iter().chain(heavy).collect();
    let (mut one, _) = hold(&server, "render", &["--slots", "3"]);
    assert_eq!(ok(&server, &heavy), "slots 1 2 lowest 1\n");
    let (_two, _) = hold(&server, "render", &["--slots", "3"]);
    assert_eq!(run(&server, &heavy).code, Some(75), "one is free");
    one.close_stdin();
    assert_eq!(one.code().await, Some(0));
    assert_eq!(ok(&server, &heavy), "slots 0 2 lowest 0\n");
}

/// Catches a holder that keeps one slot instead of its weight, that is not replaced, or that does not come back.
#[tokio::test]
async fn as_many_hold_as_there_are_slots() {
    let server = RedisServer::start().await;
    let start = |part: &[&str]| {
        let script = "echo part $LEASEHOLD_RESOURCE $LEASEHOLD_SLOTS; exec sleep 60";
        let (begin, end) = (
            ["hold", "render", "--pause", "10ms"],
            ["--", "sh", "-c", script],
        );
        Program::spawn(on(&server, begin.iter().chain(part).chain(&end)))
    };
    let mut heavy = start(&["--slots", "3", "--weight", "2"]);
    assert_eq!(heavy.line("part ").trim_end(), "render#0 0 1");
    heavy.error_line("leasehold: holding render#0 with token ");
    let light = start(&["--slots", "3"]);
    assert_eq!(light.line("part ").trim_end(), "render#2 2");
    let next = start(&["--slots", "3", "--weight", "2"]);
    in_line(&server, "render").await;
    heavy.signal(Signal::SIGTERM);
    assert_eq!(heavy.code().await, Some(143));
    assert_eq!(next.line("part ").trim_end(), "render#0 0 1");
    let json = ok(&server, &["inspect", "render", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let holders = json["shared"]["holders"].as_array().expect("a list");
    let of_slot = holders.iter().find(|holder| holder["slots"][0] == 2);
    let token = of_slot.expect("the light one")["token"].to_string();
    ok(
        &server,
        &["release", "--force", "render", "--yes", "--token", &token],
    );
    assert_eq!(light.line("part ").trim_end(), "render#2 2", "after a loss");
}

/// Catches a side of `hold` that holds as the other one does.
#[tokio::test]
async fn a_side_is_held() {
    let server = RedisServer::start().await;
    let start = |side| {
        Program::spawn(on(
            &server,
            [
                "hold",
                "prices",
                side,
                "--",
                "sh",
                "-c",
                "echo here; exec sleep 60",
            ],
        ))
    };
    let (mut one, mut two) = (start("--read"), start("--read"));
    one.line("here");
    two.line("here");
    let writer = start("--write");
    let told = || ok(&server, &["inspect", "prices"]);
    in_line(&server, "prices").await;
    assert!(
        told().starts_with("prices is held: 2 readers\n"),
        "{}",
        told()
    );
    for reader in [&mut one, &mut two] {
        reader.signal(Signal::SIGTERM);
        assert_eq!(reader.code().await, Some(143));
    }
    writer.line("here");
    assert!(
        told().starts_with("prices is held: 1 writer\n"),
        "{}",
        told()
    );
}

/// Catches a writer beside readers, readers that exclude each other, and a reader that does not learn the writer's token.
#[tokio::test]
async fn readers_run_together_and_a_writer_alone() {
    let server = RedisServer::start().await;
    let write = [
        "run",
        "prices",
        "--write",
        "--no-wait",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_TOKEN",
    ];
    let written = ok(&server, &write);
    let (_first, part) = hold(&server, "prices", &["--read"]);
    assert_eq!(part.trim_end(), format!("prices {}", written.trim_end()));
    let (_second, _) = hold(&server, "prices", &["--read"]);
    assert_eq!(run(&server, &write).code, Some(75));
    let told = ok(&server, &["inspect", "prices"]);
    assert!(told.starts_with("prices is held: 2 readers\n"), "{told}");
    let json = ok(&server, &["list", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["shared"]["sharing"], &json["shared"]["held"]),
        (&"access".into(), &2.into())
    );
}

/// Catches a forced release of all holders, or of none, where one is meant.
#[tokio::test]
async fn one_holder_is_released_by_force_by_its_token() {
    let server = RedisServer::start().await;
    let (_first, _) = hold(&server, "render", &["--slots", "2"]);
    let (mut second, _) = hold(&server, "render", &["--slots", "2"]);
    let json = ok(&server, &["inspect", "render", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let holders = json["shared"]["holders"].as_array().expect("a list");
    let of_slot = holders.iter().find(|holder| holder["slots"][0] == 1);
    let token = of_slot.expect("the second one")["token"].to_string();
    let all = run(&server, &["release", "--force", "render", "--yes"]);
    assert_eq!(all.code, Some(64), "{all:?}");
    ok(
        &server,
        &["release", "--force", "render", "--yes", "--token", &token],
    );
    assert_eq!(second.code().await, Some(79));
    let told = ok(&server, &["inspect", "render"]);
    assert!(told.starts_with("render is held: 1 of 2 slots\n"), "{told}");
}

#[tokio::test]
async fn bad_calls_are_refused_with_their_reason() {
    let server = RedisServer::start().await;
    let (_holder, _) = hold(&server, "render", &["--slots", "2"]);
    let cases = [
        (
            &["run", "render", "--slots", "0", "--", "true"][..],
            64,
            "from 1 to 10000",
        ),
        (
            &["run", "render", "--read", "--at-least", "60s", "--", "true"],
            64,
            "--at-least",
        ),
        (
            &["run", "render", "--read", "--write", "--", "true"],
            64,
            "--write",
        ),
        (
            &["run", "render", "--weight", "2", "--", "true"],
            64,
            "--slots",
        ),
        (
            &[
                "run", "render", "--slots", "2", "--weight", "0", "--", "true",
            ],
            64,
            "weight",
        ),
        (
            &[
                "hold", "render", "--slots", "2", "--weight", "65", "--", "true",
            ],
            64,
            "weight",
        ),
        (
            &[
                "hold",
                "render",
                "--read",
                "--at-least",
                "60s",
                "--",
                "true",
            ],
            64,
            "--at-least",
        ),
        (
            &["run", "render", "--once", "7", "--slots", "2", "--", "true"],
            64,
            "--slots",
        ),
        (
            &["run", "render", "--no-wait", "--", "true"],
            78,
            "used for a semaphore",
        ),
        (
            &["run", "render", "--read", "--no-wait", "--", "true"],
            78,
            "used for a semaphore",
        ),
        (
            &["resize", "nothing", "3"],
            64,
            "nothing is no semaphore or quota",
        ),
        (&["resize", "render", "0"], 64, "from 1 to 10000"),
    ];
    for (args, code, says) in cases {
        let ran = run(&server, args);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.stderr.contains(says), "{ran:?}");
    }
}

/// Catches changes of holders that are not shown, and a held name that is shown as free.
#[tokio::test]
async fn changes_of_holders_are_watched() {
    let server = RedisServer::start().await;
    let watch = Program::spawn(on(&server, ["watch", "render", "--interval", "50ms"]));
    watch.line_with("render");
    let (mut first, _) = hold(&server, "render", &["--slots", "2"]);
    watch.line_with("1 of 2 slots");
    let (_second, _) = hold(&server, "render", &["--slots", "2"]);
    watch.line_with("2 of 2 slots");
    first.close_stdin();
    watch.line_with("1 of 2 slots");
}
