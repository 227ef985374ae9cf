//! The short examples on a real server, and the limit that keeps them short.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use leasehold::Locker;
use leasehold_tests::{Child, RedisServer, eventually};
use rustix::process::Signal;

use crate::{LIMIT, program, signal, start};

/// Returns the token in the next line that begins with this.
async fn token_behind(child: &mut Child, prefix: &str) -> u64 {
    token_in(&child.wait_line(prefix, LIMIT).await, prefix)
}

fn token_in(line: &str, prefix: &str) -> u64 {
    let rest = line
        .strip_prefix(prefix)
        .expect("the line begins with the prefix");
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
    digits
        .expect("the line has a next word")
        .parse()
        .expect("the word is a token")
}

async fn until_waiting(locker: &Locker, name: &str) {
    eventually(LIMIT, "a waiter", async || {
        locker
            .inspect(name)
            .await
            .expect("the server answers")
            .waiting
            == 1
    })
    .await;
}

/// Catches a Ctrl-C that leaves the lock to expire after its 10 s.
#[tokio::test]
async fn lock_is_held_by_one_and_free_at_ctrl_c() {
    let server = RedisServer::start().await;
    let locker = Locker::connect(server.url()).await.expect("an answer");
    let mut first = start("lock", &server.url());
    let one = token_behind(&mut first, "held with token ").await;
    let mut second = start("lock", &server.url());
    until_waiting(&locker, "orders/42").await;
    signal(&first, Signal::INT);
    assert!(!first.wait_exit(LIMIT).await, "the program was interrupted");
    let holder = eventually(LIMIT / 6, "the handoff", async || {
        let seen = locker
            .inspect("orders/42")
            .await
            .expect("the server answers");
        seen.holder.filter(|holder| holder.token.get() > one)
    });
    let holder = holder.await;
    assert_eq!(
        token_behind(&mut second, "held with token ").await,
        holder.token.get()
    );
    second.wait_line("released", LIMIT).await;
    assert!(second.wait_exit(LIMIT).await);
}

#[tokio::test]
async fn events_prints_a_loss_and_the_next_tenure() {
    let server = RedisServer::start().await;
    let operator = Locker::connect(server.url()).await.expect("an answer");
    let mut child = start("events", &server.url());
    let held = "lock \"example\": the lease with token ";
    let first = token_behind(&mut child, held).await;
    operator.force_release("example").await.expect("an answer");
    child.wait_line("work must stop", LIMIT).await;
    let second = loop {
        let line = child.wait_line(held, LIMIT).await;
        if line.contains("is held for") {
            break token_in(&line, held);
        }
    };
    assert!(second > first, "{second} after {first}");
    signal(&child, Signal::INT);
    assert!(child.wait_exit(LIMIT).await);
    let left = operator.inspect("example").await.expect("an answer");
    assert!(left.holder.is_none(), "{left:?}");
}

#[tokio::test]
async fn leader_leads_one_at_a_time() {
    let server = RedisServer::start().await;
    let operator = Locker::connect(server.url()).await.expect("an answer");
    let mut one = start("leader", &server.url());
    let first = token_behind(&mut one, "leading with token ").await;
    let mut other = start("leader", &server.url());
    until_waiting(&operator, "leader").await;
    // The former leader goes to the end of the line.
    operator.force_release("leader").await.expect("an answer");
    one.wait_line("no longer leading", LIMIT).await;
    let second = token_behind(&mut other, "leading with token ").await;
    until_waiting(&operator, "leader").await;
    signal(&other, Signal::INT);
    assert!(other.wait_exit(LIMIT).await);
    let third = token_behind(&mut one, "leading with token ").await;
    assert!(
        first < second && second < third,
        "{first}, {second}, {third}"
    );
}

#[tokio::test]
async fn cron_runs_each_tick_in_one_process() {
    let server = RedisServer::start().await;
    let mut all = [
        start("cron", &server.url()),
        start("cron", &server.url()),
        start("cron", "memory://"),
    ];
    let alone = all[2].wait_line("tick ", LIMIT).await;
    assert!(alone.contains(" with token "), "{alone}");
    let operator = Locker::connect(server.url()).await.expect("an answer");
    let completed = async || {
        let seen = operator.inspect("report").await.ok()?;
        seen.job?.completed
    };
    let is_completed = async || completed().await.is_some();
    leasehold_tests::eventually(LIMIT, "a tick is completed", is_completed).await;
    for child in &all {
        signal(child, Signal::INT);
    }
    for child in &mut all {
        assert!(child.wait_exit(LIMIT).await);
    }
    let left = operator.inspect("report").await.expect("an answer");
    assert!(left.holder.is_none(), "{left:?}");
}

#[tokio::test]
async fn cancellation_leaves_nothing_behind() {
    let server = RedisServer::start().await;
    for url in [&server.url(), "memory://"] {
        let mut child = start("cancellation", url);
        child.wait_line("after 500ms of waiting: None", LIMIT).await;
        child.wait_line("no longer wanted", LIMIT).await;
        child.wait_line("waiters in line: 0", LIMIT).await;
        let stopped = child.wait_line("the work stopped: ", LIMIT).await;
        assert!(
            stopped.ends_with("the lock was force-released"),
            "{stopped}"
        );
        assert!(child.wait_exit(LIMIT).await);
    }
}

/// Catches a leader that hears of the request at its next renewal, ten seconds later, or not at all.
#[tokio::test]
async fn rolling_deploy_hands_over_long_before_a_lock_expires() {
    let server = RedisServer::start().await;
    for url in [&server.url(), "memory://rolling"] {
        let mut child = start("rolling_deploy", url);
        // The end of a request and the next leader are told in any order.
        let mut lines = Vec::new();
        let expired = loop {
            let line = child.wait_line("", LIMIT).await;
            if line.starts_with("expired: ") {
                break line;
            }
            lines.push(line);
        };
        assert!(!expired.ends_with("ms"), "it took seconds: {expired}");
        let tokens = [1, 2, 3, 4].map(|version| {
            let leads = format!("version {version} leads with token ");
            let line = lines.iter().find(|line| line.starts_with(&leads));
            token_in(line.expect("each version leads"), &leads)
        });
        assert!(tokens.is_sorted(), "{tokens:?}");
        let yielded = lines
            .iter()
            .filter(|line| line.starts_with("yielded: true, "));
        assert_eq!(yielded.count(), 3, "{lines:?}");
        assert!(child.wait_exit(LIMIT).await);
    }
}

/// Catches callers that wait for each other in a circle, and money that is lost or made.
#[tokio::test]
async fn transfer_moves_money_in_both_directions() {
    let server = RedisServer::start().await;
    for url in [&server.url(), "memory://"] {
        let mut child = start("transfer", url);
        child.wait_line("balances: [90, 110]", LIMIT).await;
        assert!(child.wait_exit(LIMIT).await);
    }
}

/// Catches two callers with one license, and a guard that knows only the name of all.
#[tokio::test]
async fn licenses_refuse_a_late_holder() {
    let server = RedisServer::start().await;
    for url in [&server.url(), "memory://"] {
        let mut child = start("licenses", url);
        let late = child.wait_line("late: Err(Error(staleToken: ", LIMIT).await;
        assert!(late.contains("licenses#0"), "{late}");
        assert!(child.wait_exit(LIMIT).await);
    }
}

/// Catches a reader that is not told of the last writer.
#[tokio::test]
async fn readers_reject_an_old_cache() {
    let server = RedisServer::start().await;
    for url in [&server.url(), "memory://"] {
        let mut child = start("read_mostly", url);
        for _ in 0..5 {
            let read = child.wait_line("reader ", LIMIT).await;
            assert!(read.ends_with(": 12, the cache was old: true"), "{read}");
        }
        assert!(child.wait_exit(LIMIT).await);
    }
}

#[tokio::test]
async fn fenced_sql_refuses_the_late_write() {
    let server = RedisServer::start().await;
    for url in [&server.url(), "memory://"] {
        let mut child = start("fenced_sql", url);
        child.wait_line("balance: 70", LIMIT).await;
        let late = child.wait_line("late: Err(Error(staleToken: ", LIMIT).await;
        assert!(late.contains("account/7"), "{late}");
        assert!(child.wait_exit(LIMIT).await);
    }
}

#[tokio::test]
async fn quorum_outlives_two_stores_of_five() {
    let mut child = Child::spawn(&program("quorum"), [""; 0]);
    outlives(&mut child, "2 of 5 servers are missing").await;
}

#[tokio::test]
async fn quorum_outlives_one_server_of_three() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(RedisServer::start().await);
    }
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let mut child = Child::spawn(&program("quorum"), &urls);
    let lease = "lock \"orders/42\": the lease with token ";
    token_behind(&mut child, lease).await;
    // By the next event, a server that granted the lease after the two others counts, too.
    let renewed = child.wait_line(lease, LIMIT).await;
    assert!(renewed.contains("was renewed"), "{renewed}");
    servers[0].kill();
    outlives(&mut child, "1 of 3 servers").await;
}

/// Checks that the lease is at risk, still renewed, and not lost.
async fn outlives(child: &mut Child, missing: &str) {
    let mut lines = Vec::new();
    let has = |lines: &[String], what: &str| lines.iter().any(|line| line.contains(what));
    eventually(LIMIT, "its release", async || {
        lines.extend(child.unread_lines());
        has(&lines, "was released")
    })
    .await;
    let risk = lines.iter().position(|line| line.contains("is at risk"));
    let renewed = &lines[risk.unwrap_or(lines.len())..];
    assert!(
        has(renewed, missing) && has(renewed, "was renewed"),
        "{lines:#?}"
    );
    assert!(!has(&lines, "was lost"), "{lines:#?}");
    assert!(child.wait_exit(LIMIT).await);
}

#[tokio::test]
async fn adapter_hands_the_lock_over() {
    let server = RedisServer::start().await;
    let mut child = start("adapter", &server.url());
    let first = token_behind(&mut child, "the first locker holds it with token ").await;
    let line = child.wait_line("the second has it ", LIMIT).await;
    let second = line.rsplit(' ').next().expect("a token").parse();
    assert!(first < second.expect("the token is a number"), "{line}");
    assert!(child.wait_exit(LIMIT).await);
}

/// Catches an error that names no server or shows the password, and an exit code of 0.
#[test]
fn a_missing_server_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = free.local_addr().expect("the socket is bound").to_string();
    drop(free);
    let fails = |example: &str, url: &str, why: &str| {
        let mut command = Command::new(program(example));
        match example {
            "quorum" => command.args([url, "redis://127.0.0.1:1", "redis://127.0.0.1:2"]),
            _ => command.env("LEASEHOLD_URL", url),
        };
        let ran = command.output().expect("the program starts");
        let printed = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(1), "{example}: {printed}");
        assert!(printed.contains(why), "{example}: {printed}");
        assert!(!printed.contains("s3cret"), "{example}: {printed}");
    };
    for example in [
        "cancellation",
        "cron",
        "events",
        "fenced_sql",
        "leader",
        "licenses",
        "lock",
        "quorum",
        "read_mostly",
        "rolling_deploy",
        "transfer",
    ] {
        fails(example, &format!("redis://:s3cret@{address}"), &address);
        fails(example, "http://:s3cret@127.0.0.1", "redis://");
    }
    fails("adapter", &format!("redis://{address}"), &address);
    fails(
        "adapter",
        &format!("redis://:s3cret@{address}"),
        "redis://host:port",
    );
}

/// Catches an example that is too long, needs a helper, or exists in one language only.
#[test]
fn the_examples_are_short_and_exist_in_both_languages() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let read = |folder: &Path, kind: &str| -> BTreeMap<_, _> {
        let files = fs::read_dir(folder).expect("the folder exists");
        let files = files.map(|file| file.expect("the folder can be read").path());
        let files = files.filter(|file| file.extension().is_some_and(|own| own == kind));
        let named = |file: std::path::PathBuf| {
            let name = file.file_stem().expect("a file has a name").to_owned();
            (name, fs::read_to_string(file).expect("the file is text"))
        };
        files.map(named).collect()
    };
    let (rust, node) = (read(&examples, "rs"), read(&examples.join("node"), "mjs"));
    assert!(rust.len() >= 6 && rust.keys().all(|name| node.contains_key(name)));
    for (name, text) in rust.iter().chain(&node) {
        let lines = text.lines().count();
        assert!(
            lines <= 40,
            "{} has {lines} lines, and may have 40",
            name.display()
        );
        assert!(
            !text.contains("leasehold_demos"),
            "{} needs a helper",
            name.display()
        );
    }
}
