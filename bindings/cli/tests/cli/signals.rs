//! Signals to `leasehold run`.

use leasehold_tests::{RedisServer, eventually};
use nix::sys::signal::Signal;

use crate::program::{LIMIT, Program, is_held, leasehold, on, output};

/// Prints the signals that it gets, and goes on.
const TELLS: &str = "for s in INT TERM HUP QUIT USR1 USR2; do trap \"echo got $s\" $s; done; \
                     echo up; while :; do sleep 0.02; done";

#[tokio::test]
async fn signals_are_handed_on_each_time() {
    let server = RedisServer::start().await;
    let program = Program::spawn(on(&server, ["run", "a", "--", "sh", "-c", TELLS]));
    program.line("up");
    for (signal, name) in [
        (Signal::SIGINT, "INT"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
    ] {
        program.signal(signal);
        assert_eq!(program.line("got"), name);
    }
    assert!(is_held(&server, "a").await);
}

#[tokio::test]
async fn a_command_that_ends_by_a_signal_gives_the_lock_back() {
    let server = RedisServer::start().await;
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGINT, 130),
    ] {
        let args = ["run", "a", "--", "sh", "-c", "echo up; exec sleep 60"];
        let mut program = Program::spawn(on(&server, args));
        program.line("up");
        program.signal(signal);
        assert_eq!(program.code().await, Some(code));
        assert!(!is_held(&server, "a").await);
    }
}

#[tokio::test]
async fn who_waits_leaves_the_line_at_a_signal() {
    let server = RedisServer::start().await;
    let holder = Program::spawn(on(&server, ["run", "a", "--", "sh", "-c", "echo up; cat"]));
    holder.line("up");
    let mut waiter = Program::spawn(on(&server, ["run", "a", "--json", "--", "true"]));
    waiter.error_line(r#"{"type":"waiting""#);
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.code().await, Some(143));
    let mut admin = leasehold_tests::Admin::connect(&server).await;
    let line = format!("{}:line", crate::program::key("a"));
    assert_eq!(admin.int(&["EXISTS", &line]).await, 0, "its place is gone");
}

/// The command does not inherit what this process does to its own signals.
#[tokio::test]
async fn the_command_begins_with_nothing_blocked_or_ignored() {
    let script = "grep -E 'SigBlk|SigIgn' /proc/self/status";
    let ran = output(leasehold([
        "run",
        "a",
        "--url",
        "memory://",
        "--",
        "sh",
        "-c",
        script,
    ]));
    let mut masks = ran
        .stdout
        .split_whitespace()
        .filter_map(|word| u64::from_str_radix(word, 16).ok());
    assert_eq!(masks.next(), Some(0), "{ran:?}");
    // The signals that were ignored when this test started. Rust ignores SIGPIPE, which is not inherited either.
    // Signals from 32 on belong to the C library.
    let own = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let own = own.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let own = own.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let pipe = 1_u64 << (Signal::SIGPIPE as i32 - 1);
    // `leasehold()` resets these.
    let reset = [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGTERM,
    ];
    let reset = reset.map(|signal| 1_u64 << (signal as i32 - 1));
    let known = |mask| mask & 0x7fff_ffff & !pipe & !reset.iter().sum::<u64>();
    assert_eq!(
        masks.next().map(|mask| mask & 0x7fff_ffff),
        own.map(known),
        "{ran:?}"
    );
}

#[tokio::test]
async fn what_was_ignored_from_the_start_stays_so() {
    let server = RedisServer::start().await;
    let mut command = std::process::Command::new("nohup");
    command.env("LEASEHOLD_URL", server.url());
    let script = "kill -HUP $$; echo survived; read -r x";
    command.args([
        crate::program::LEASEHOLD,
        "run",
        "a",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let mut program = Program::spawn(command);
    program.line("survived");
    program.signal(Signal::SIGHUP);
    program.signal(Signal::SIGHUP);
    program.close_stdin();
    assert_eq!(program.code().await, Some(1), "the end of what it read");
}

/// Catches a command that is killed without being asked, because a stopped process does not get the question.
#[tokio::test]
async fn a_command_that_was_stopped_by_somebody_is_still_ended() {
    let server = RedisServer::start().await;
    let args = [
        "run",
        "a",
        "--ttl",
        "3s",
        "--",
        "sh",
        "-c",
        "trap 'echo asked; exit 9' TERM; echo leader $$; kill -STOP $$; exit 5",
    ];
    let mut program = Program::spawn(on(&server, args));
    let group = crate::program::ProcessGroup::of(&program.line("leader"));
    leasehold_tests::Admin::connect(&server)
        .await
        .int(&["DEL", &crate::program::key("a")])
        .await;
    program.line("asked");
    assert_eq!(program.code().await, Some(79));
    eventually(LIMIT, "the end of the group", async || !group.is_alive()).await;
}
