//! Each demonstration prints at once what it does, and ends well, which it checks itself.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_tests::Child;
use rustix::process::Signal;

use crate::{LIMIT, program, signal};

/// The demonstrations, each with the start of its first line.
const DEMOS: [(&str, &str); 8] = [
    ("failover", "One of three processes leads"),
    ("five_callers", "5 callers ask at once"),
    ("market", "Sellers and buyers on a market"),
    ("outage", "It holds a lock"),
    ("oversell", "10 buyers, 5 in stock."),
    ("oversell_sql", "8 buyers, 5 in stock."),
    ("paused_writer", "Client 1 has a lease"),
    ("reward", "5 of one family want a reward."),
];

/// Catches a demonstration that waits for its server before its first line, or that a signal does not end.
#[tokio::test]
async fn each_demonstration_prints_what_it_does_before_it_waits() {
    // The store, and the program that would be started as one, never answer.
    let store = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = store.local_addr().expect("the socket is bound").port();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let server = folder.path().join("redis-server");
    fs::write(&server, "#!/bin/sh\nexec /bin/sleep 60\n").expect("a file can be written");
    fs::set_permissions(&server, fs::Permissions::from_mode(0o700))
        .expect("the file is the test's own");
    for (demo, line) in DEMOS {
        let url = format!("LEASEHOLD_URL=redis://127.0.0.1:{port}").into();
        let path = format!("PATH={}", folder.path().display()).into();
        let args: [PathBuf; 3] = [url, path, program(demo)];
        let mut child = Child::spawn(Path::new("env"), args);
        child.wait_line(line, LIMIT).await;
        signal(&child, Signal::TERM);
        assert!(!child.wait_exit(LIMIT).await, "{demo}");
    }
}

/// Runs a demonstration up to three times: some depend on time, and fail on a machine that stands still.
fn ends_well(demo: &str, args: &[&str]) {
    for tries in 1.. {
        let mut command = Command::new(program(demo));
        let ran = command.args(args).env_remove("LEASEHOLD_URL").output();
        let ran = ran.expect("the program starts");
        let printed = String::from_utf8_lossy(&ran.stdout);
        let errors = String::from_utf8_lossy(&ran.stderr);
        if ran.status.success() && errors.is_empty() {
            return;
        }
        let otherwise = errors.starts_with("error: a promise was broken");
        assert!(otherwise && tries < 3, "{demo}: {printed}{errors}");
    }
}

#[test]
fn failover_ends_well() {
    ends_well("failover", &[]);
}

#[test]
fn five_callers_ends_well() {
    ends_well("five_callers", &[]);
}

#[test]
fn market_ends_well() {
    ends_well("market", &["1"]);
}

#[test]
fn outage_ends_well() {
    ends_well("outage", &[]);
}

#[test]
fn oversell_ends_well() {
    ends_well("oversell", &[]);
}

#[test]
fn oversell_sql_ends_well() {
    ends_well("oversell_sql", &[]);
}

#[test]
fn paused_writer_ends_well() {
    ends_well("paused_writer", &[]);
}

#[test]
fn reward_ends_well() {
    ends_well("reward", &[]);
}
