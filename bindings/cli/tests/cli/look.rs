//! `leasehold list`, `inspect`, `release` and `watch`.

use leasehold_tests::{Admin, RedisServer, eventually};
use nix::sys::signal::Signal;

use crate::program::{LIMIT, Output, Program, is_held, key, leasehold, on, output, wall};
use crate::pty::Shell;

/// Holds a lock until the program is dropped or its standard input is closed.
pub(crate) fn hold(server: &RedisServer, name: &str) -> (Program, u64) {
    let script = "echo token $LEASEHOLD_TOKEN; cat";
    let holder = Program::spawn(on(
        server,
        ["run", name, "--json", "--", "sh", "-c", script],
    ));
    let token = holder.line("token").parse().expect("a number");
    (holder, token)
}

pub(crate) fn wait_in_line(server: &RedisServer, name: &str) -> Program {
    let waiter = Program::spawn(on(server, ["run", name, "--json", "--", "cat"]));
    waiter.error_line(r#"{"type":"waiting""#);
    waiter
}

fn ok(ran: Output) -> String {
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    ran.stdout
}

#[tokio::test]
async fn the_locks_that_are_held_are_listed() {
    let server = RedisServer::start().await;
    assert_eq!(ok(output(on(&server, ["list", "--json"]))), "");
    let (_first, one) = hold(&server, "orders/1");
    let (_second, two) = hold(&server, "orders/2\u{1b}[2J");
    let (_third, _) = hold(&server, "users/7");
    let _waiter = wait_in_line(&server, "orders/1");
    let all = ok(output(on(&server, ["list"])));
    assert_eq!(all.lines().count(), 4, "{all}");
    assert!(all.starts_with("NAME "), "{all}");
    assert!(
        all.contains(r"orders/2\u{1b}[2J"),
        "no command to a terminal: {all}"
    );
    let some = ok(output(on(&server, ["list", "orders/*", "--json"])));
    let lines: Vec<_> = some.lines().collect();
    assert_eq!(lines.len(), 2, "{some}");
    let begin = format!(r#"{{"name":"orders/1","holder":{{"token":{one},"remaining":"#);
    assert!(lines[0].starts_with(&begin), "{some}");
    assert!(
        lines[0].contains(r#""waiting":1,"line":[{"owner":"#),
        "{some}"
    );
    assert!(lines[1].contains(&format!(r#""token":{two}"#)), "{some}");
    let ran = output(on(&server, ["list", "a\\b"]));
    assert_eq!(ran.code, Some(64), "{ran:?}");
}

#[tokio::test]
async fn a_lock_is_inspected() {
    let server = RedisServer::start().await;
    let free = r#"{"name":"a","holder":null,"lastToken":null,"waiting":0,"line":[],"serverTime":"#;
    let inspect = |more: &[&str]| {
        let args = ["inspect", "a"].iter().chain(more);
        ok(output(on(&server, args)))
    };
    assert!(inspect(&["--json"]).starts_with(free));
    assert_eq!(inspect(&[]), "a is free\n");
    let (_holder, token) = hold(&server, "a");
    let _waiter = wait_in_line(&server, "a");
    let told = inspect(&[]);
    assert!(told.starts_with("a is held\n  by       "), "{told}");
    assert!(told.contains(&format!("  token    {token}\n")), "{told}");
    assert!(told.contains("  waiting  1\n      1. "), "{told}");
}

#[tokio::test]
async fn a_lock_is_released_by_force() {
    let server = RedisServer::start().await;
    let (mut holder, token) = hold(&server, "a");
    for (args, says) in [
        (&["release", "a"][..], "--force"),
        (&["release", "--force", "a"], "--yes"),
    ] {
        let ran = output(on(&server, args));
        assert_eq!(ran.code, Some(64), "{ran:?}");
        assert!(ran.stderr.contains(says), "{ran:?}");
    }
    assert!(is_held(&server, "a").await);
    let (token, other) = (token.to_string(), (token - 1).to_string());
    let args = ["release", "--force", "a", "--yes", "--token", &other];
    let spared = ok(output(on(&server, args)));
    assert_eq!(spared, format!("nobody has a with token {other}\n"));
    assert!(is_held(&server, "a").await);
    let args = [
        "release", "--force", "a", "--yes", "--json", "--token", &token,
    ];
    let released = ok(output(on(&server, args)));
    let begin = format!(r#"{{"name":"a","released":{{"token":{token},"#);
    assert!(released.starts_with(&begin), "{released}");
    holder.error_line(r#"{"type":"lost","name":"a","#);
    assert_eq!(holder.code().await, Some(79));
    let again = ok(output(on(&server, ["release", "--force", "a", "--yes"])));
    assert_eq!(again, "a was free\n");
}

#[tokio::test]
async fn on_a_terminal_it_asks() {
    let server = RedisServer::start().await;
    let (_holder, token) = hold(&server, "a");
    let mut shell = Shell::start(&server.url());
    shell.types("$L release --force a; echo code:$?.\n");
    shell.sees(&format!("with token {token}"));
    shell.sees("[y/N]");
    shell.types("n\n");
    shell.sees("nothing was released");
    shell.sees("code:1.");
    assert!(is_held(&server, "a").await);
    shell.types("$L release --force a; echo code:$?\n");
    shell.sees("[y/N]");
    shell.types("y\n");
    shell.sees("a was released");
    shell.sees("code:0");
}

/// Parses a JSON line whose beginning, the type and the name, was already read.
fn json(rest: &str, kind: &str) -> serde_json::Value {
    let line = format!(r#"{{"type":"{kind}","name":"a"{rest}"#);
    serde_json::from_str(&line).expect("JSON")
}

#[tokio::test]
async fn what_happens_is_watched() {
    let server = RedisServer::start().await;
    let args = ["watch", "a", "b*", "--json", "--interval", "50ms"];
    let watch = Program::spawn(on(&server, args));
    let before = wall().as_millis();
    let at_first = json(&watch.line(r#"{"type":"free","name":"a""#), "free");
    assert!(at_first["reason"].is_null(), "nothing ended: {at_first}");
    let (mut holder, token) = hold(&server, "a");
    let held = json(&watch.line(r#"{"type":"held","name":"a""#), "held");
    assert_eq!(held["holder"]["token"], token);
    assert!(held["reason"].is_null(), "nothing ended: {held}");
    let time = u128::from(held["time"].as_u64().expect("milliseconds since 1970"));
    assert!((before..=wall().as_millis()).contains(&time), "{held}");
    let mut waiter = wait_in_line(&server, "a");
    let line = watch.line(r#"{"type":"line","name":"a""#);
    assert!(line.contains(r#""waiting":1"#), "{line}");
    holder.close_stdin();
    let held = json(&watch.line(r#"{"type":"held","name":"a""#), "held");
    assert_eq!(
        (&held["waiting"], &held["reason"]),
        (&0.into(), &"released".into())
    );
    waiter.close_stdin();
    let free = json(&watch.line(r#"{"type":"free","name":"a""#), "free");
    assert_eq!(free["reason"], "released", "{free}");
    assert!(free["time"].as_u64() >= held["time"].as_u64(), "{free}");
    // A killed holder no longer renews.
    let args = ["run", "a", "--ttl", "4s", "--on-loss", "warn", "--", "cat"];
    let killed = Program::spawn(on(&server, args));
    watch.line(r#"{"type":"held","name":"a""#);
    killed.signal(Signal::SIGKILL);
    let free = json(&watch.line(r#"{"type":"free","name":"a""#), "free");
    assert_eq!(free["reason"], "expired", "{free}");
    // Matching names appear and disappear.
    let (mut other, _) = hold(&server, "b1");
    watch.line(r#"{"type":"held","name":"b1""#);
    other.close_stdin();
    watch.line(r#"{"type":"free","name":"b1""#);
    assert_eq!(holder.code().await, Some(0));
}

#[tokio::test]
async fn watching_goes_on_after_the_store_was_away() {
    let mut server = RedisServer::start().await;
    let watch = Program::spawn(on(&server, ["watch", "--interval", "50ms"]));
    let (holder, _) = hold(&server, "a");
    let held = watch.line_with("held a  by ");
    assert!(held.contains("token"), "{held}");
    drop(holder);
    server.kill();
    watch.error_line("leasehold: the store cannot be reached; retrying");
    server.restart().await;
    watch.error_line("leasehold: the store is back");
}

#[tokio::test]
async fn a_reader_that_has_enough_is_no_failure() {
    let server = RedisServer::start().await;
    let (_holder, _) = hold(&server, "a");
    let mut pipeline = std::process::Command::new("bash");
    let script = "\"$L\" watch --json --interval 50ms | head -n 1; echo ${PIPESTATUS[0]}";
    pipeline
        .args(["-c", script])
        .env("L", crate::program::LEASEHOLD);
    pipeline.env("LEASEHOLD_URL", server.url());
    let running = Program::spawn(pipeline);
    running.line(r#"{"type":"held","name":"a""#);
    // It notices only when it next writes.
    let mut admin = Admin::connect(&server).await;
    eventually(LIMIT, "a lock to be gone", async || {
        admin.int(&["DEL", &key("a")]).await == 0
    })
    .await;
    running.line("0");
}

#[tokio::test]
async fn a_user_without_the_right_to_list_is_told() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let rights = ["~*", "&*", "+@all", "-scan"];
    let user = ["ACL", "SETUSER", "me", "on", ">pw"];
    admin.ok(&[&user[..], &rights[..]].concat()).await;
    let url = format!("redis://me:pw@127.0.0.1:{}", server.port());
    let ran = output(leasehold(["list", "--url", &url, "--json"]));
    assert_eq!(ran.code, Some(77), "{ran:?}");
    assert!(
        ran.stderr.starts_with(r#"{"type":"failed","exit":77,"#),
        "{ran:?}"
    );
}

/// Catches a request that the holder does not hear, or that takes the lock without `--force`.
#[tokio::test]
async fn a_holder_is_asked_to_yield() {
    let server = RedisServer::start().await;
    let free = ok(output(on(&server, ["yield", "a", "--within", "10s"])));
    assert_eq!(free, "the holder of a is gone\n");

    let (mut holder, _) = hold(&server, "a");
    let kept = output(on(&server, ["yield", "a", "--within", "300ms", "--json"]));
    assert_eq!(kept.code, Some(75), "{kept:?}");
    assert_eq!(kept.stdout, "{\"name\":\"a\",\"yielded\":false}\n");
    holder.error_line(r#"{"type":"wanted","name":"a","#);
    assert!(is_held(&server, "a").await);

    let asked = on(&server, ["yield", "a", "--within", "20s"]);
    let asking = tokio::task::spawn_blocking(move || output(asked));
    eventually(LIMIT, "the request", async || {
        ok(output(on(&server, ["inspect", "a"]))).contains("  wanted   by ")
    })
    .await;
    holder.close_stdin();
    let asked = asking.await.expect("it is not cancelled");
    assert_eq!(ok(asked), "the holder of a is gone\n");

    let (stuck, _) = hold(&server, "a");
    let args = ["yield", "a", "--within", "100ms", "--force"];
    assert_eq!(ok(output(on(&server, args))), "the holder of a is gone\n");
    stuck.error_line(r#"{"type":"lost","name":"a","#);
}
