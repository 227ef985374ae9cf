//! Many commands contend for one lock.

use std::path::Path;
use std::process::Command;

use leasehold_tests::RedisServer;
use tempfile::TempDir;

use crate::program::{Program, on};

/// Fails with 9 if somebody else is in the room: `set -C` creates a file by `O_EXCL`.
fn alone(room: &Path, seconds: &str) -> String {
    let room = room.display();
    format!("set -C; echo > {room} || exit 9; sleep {seconds}; rm {room}")
}

async fn codes(commands: impl Iterator<Item = Command>) -> Vec<Option<i32>> {
    let programs: Vec<_> = commands.map(Program::spawn).collect();
    let mut codes = Vec::new();
    for mut program in programs {
        codes.push(program.code().await);
    }
    codes
}

#[tokio::test]
async fn fifty_of_one_name_never_meet() {
    let server = RedisServer::start().await;
    let folder = TempDir::new().expect("a folder");
    let script = alone(&folder.path().join("room"), "0.01");
    let runs = (0..50).map(|_| on(&server, ["run", "a", "--", "sh", "-c", &script]));
    assert_eq!(codes(runs).await, [Some(0); 50]);
}

/// The negative control: without the lock they meet.
#[tokio::test]
async fn without_the_lock_they_meet() {
    let folder = TempDir::new().expect("a folder");
    let script = alone(&folder.path().join("room"), "0.5");
    let runs = (0..10).map(|_| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        shell
    });
    assert!(codes(runs).await.contains(&Some(9)));
}
