//! `leasehold hold`: one process leads at a time, in turns.

use std::path::Path;

use leasehold_tests::{Admin, RedisServer};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::program::{Program, is_held, key, leasehold, on, output};

#[tokio::test]
async fn after_a_loss_it_leads_again() {
    let server = RedisServer::start().await;
    let script = "trap 'echo ended; exit 9' TERM; echo leading $LEASEHOLD_TOKEN; \
                  read -r x <&$LEASEHOLD_EVENTS_FD; echo $x; while :; do sleep 0.02; done";
    let args = [
        "hold", "a", "--ttl", "3s", "--pause", "10ms", "--", "sh", "-c", script,
    ];
    let mut program = Program::spawn(on(&server, args));
    let first: u64 = program.line("leading").parse().expect("a token");
    program.line(&format!(
        r#"{{"type":"acquired","name":"a","token":{first},"#
    ));
    Admin::connect(&server).await.int(&["DEL", &key("a")]).await;
    program.line("ended");
    let second: u64 = program.line("leading").parse().expect("a token");
    assert!(second > first);
    // The second turn does not get the events of the first.
    program.line(&format!(
        r#"{{"type":"acquired","name":"a","token":{second},"#
    ));
    program.signal(Signal::SIGTERM);
    program.line("ended");
    assert_eq!(program.code().await, Some(9));
    assert!(!is_held(&server, "a").await);
}

/// Returns a script that prints the leader's name, and kills `leasehold` if another leader is in the room.
fn turn(room: &Path, who: &str) -> String {
    let room = room.display();
    format!("set -C; echo > {room} || kill $PPID; echo {who}; sleep 0.05; rm {room}")
}

#[tokio::test]
async fn those_who_hold_one_name_take_turns() {
    let server = RedisServer::start().await;
    let folder = TempDir::new().expect("a folder");
    let room = folder.path().join("room");
    let start = |who| {
        let script = turn(&room, who);
        let args = ["hold", "a", "--pause", "10ms", "--", "sh", "-c", &script];
        Program::spawn(on(&server, args))
    };
    let mut programs = [start("one"), start("two")];
    for _ in 0..3 {
        programs[0].line("one");
        programs[1].line("two");
    }
    for program in &mut programs {
        program.signal(Signal::SIGTERM);
        assert!(matches!(program.code().await, Some(0 | 143)));
    }
}

#[tokio::test]
async fn a_server_that_restarts_only_interrupts_it() {
    let mut server = RedisServer::start().await;
    let args = [
        "hold",
        "a",
        "--ttl",
        "2s",
        "--",
        "sh",
        "-c",
        "echo leading; exec sleep 60",
    ];
    let mut program = Program::spawn(on(&server, args));
    program.line("leading");
    server.kill();
    program.error_line("leasehold: a is about to end and could not be renewed");
    server.restart().await;
    program.line("leading");
    program.signal(Signal::SIGINT);
    assert_eq!(program.code().await, Some(130));
}

#[tokio::test]
async fn a_command_that_cannot_be_run_is_not_tried_again() {
    let ran = output(leasehold([
        "hold",
        "a",
        "--url",
        "memory://",
        "--",
        "no-such-command",
    ]));
    assert_eq!(ran.code, Some(127), "{ran:?}");
}
