//! The exit codes and messages of `leasehold run`, for bad input, too.

use std::fs;
use std::time::{Duration, Instant};

use leasehold_tests::{Direction, Mode, Proxy, RedisServer, eventually, unique_name};
use tempfile::TempDir;

use crate::program::{LIMIT, Program, is_held, leasehold, on, output};

#[tokio::test]
async fn the_code_of_the_command_is_returned() {
    let server = RedisServer::start().await;
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
        let ran = output(on(&server, ["run", "a", "--", "sh", "-c", script]));
        assert_eq!((ran.code, &*ran.stderr), (Some(code), ""), "{script}");
    }
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
        let script = format!("kill -{signal} $$");
        let ran = output(on(&server, ["run", "a", "--", "sh", "-c", &script]));
        assert_eq!(ran.code, Some(code), "{ran:?}");
    }
    assert!(!is_held(&server, "a").await);
}

#[tokio::test]
async fn a_command_that_cannot_be_run_is_told_from_one_that_is_not_there() {
    let server = RedisServer::start().await;
    let folder = TempDir::new().expect("a folder");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "").expect("it is written");
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("it is written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("it is ours");
    let path = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    for (command, code, says) in [
        (
            "no-such-command".to_owned(),
            127,
            "there is no such command",
        ),
        (
            "/no/such/command".to_owned(),
            127,
            "there is no such command",
        ),
        (path(&plain), 126, "not executable"),
        (path(folder.path()), 126, "not executable"),
        (path(&script), 126, "interpreter"),
    ] {
        let ran = output(on(&server, ["run", "a", "--", &command]));
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(
            ran.stderr.contains(&command) && ran.stderr.contains(says),
            "{ran:?}"
        );
    }
    assert!(!is_held(&server, "a").await, "the lock was given back");
}

#[tokio::test]
async fn bad_command_lines_have_a_code_and_say_what_to_do() {
    let server = RedisServer::start().await;
    let cases: [(&[&str], &str); 18] = [
        (&["run", "a", "--"], "<COMMAND>"),
        (&["run", "a"], "<COMMAND>"),
        (&["run", "--", "true"], "<NAME>"),
        (&["hold", "a", "b", "--", "true"], "unexpected argument 'b'"),
        (
            &["hold", "a", "true"],
            "one NAME, then --, then the command",
        ),
        (
            &["run", "a", "true"],
            "one NAME or several, then --, then the command",
        ),
        (&["run", "a", "--wait", "-2s", "--", "true"], "below zero"),
        (&["run", "a", "--wait=-2s", "--", "true"], "below zero"),
        (&["run", "a", "--wait", "2", "--", "true"], "2s or 2ms"),
        (
            &["run", "a", "--wait", "1s", "--no-wait", "--", "true"],
            "--no-wait",
        ),
        (&["run", "a", "-w", "1s", "-n", "--", "true"], "--no-wait"),
        (
            &["run", "a", "--ttl", "10ms", "--", "true"],
            "--ttl must be at least 1s; got 10ms",
        ),
        (
            &["run", "a", "--ttl", "9s", "--grace", "4s", "--", "true"],
            "--ttl of 12s",
        ),
        (
            &["run", "a", "--at-most", "9s", "--", "true"],
            "--at-most must be at least --ttl, here 30s; got 9s",
        ),
        (
            &[
                "run",
                "a",
                "--at-most",
                "1m",
                "--at-least",
                "2m",
                "--",
                "true",
            ],
            "--at-least must not exceed --at-most, here 1m; got 2m",
        ),
        (&["run", "", "--", "true"], "1 to 512 bytes"),
        (&["run", "a", "--namespace", "", "--", "true"], "namespace"),
        (&["no-such-task"], "no-such-task"),
    ];
    for (args, says) in cases {
        let ran = output(on(&server, args));
        assert_eq!(ran.code, Some(64), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{args:?}");
    }
}

#[tokio::test]
async fn a_bad_url_is_refused_and_no_password_shown() {
    let run = |url: &str| output(leasehold(["run", "a", "--url", url, "--", "true"]));
    for url in [
        "http://u:s3cret@127.0.0.1",
        "redis://u:s3cret@127.0.0.1:99999",
        "127.0.0.1:1",
    ] {
        let ran = run(url);
        assert_eq!(ran.code, Some(64), "{ran:?}");
        assert!(ran.stderr.contains("redis://[user"), "{ran:?}");
        assert!(!ran.stderr.contains("s3cret"), "{ran:?}");
    }
    let ran = output(leasehold(["run", "a", "--", "true"]));
    assert_eq!(ran.code, Some(64));
    assert!(ran.stderr.contains("LEASEHOLD_URL"), "{ran:?}");
    assert_eq!(run("memory://").code, Some(0));
}

#[tokio::test]
async fn the_password_comes_from_the_environment_or_a_file() {
    // The lists of processes also have those of other tests.
    let password = unique_name("s3cret").replace('-', "x");
    let server = RedisServer::config()
        .password(&password)
        .unix_socket()
        .start()
        .await;
    let tcp = format!("redis://127.0.0.1:{}", server.port());
    let socket = format!("unix://{}", server.socket_path().display());
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("password");
    fs::write(&file, format!("{password}\nmore\n")).expect("it is written");
    for url in [&tcp, &socket] {
        let run = || {
            leasehold([
                "run",
                "a",
                "--url",
                url,
                "--",
                "sh",
                "-c",
                "ps -ef; ps -ef e",
            ])
        };
        let mut with_environment = run();
        with_environment.env("LEASEHOLD_PASSWORD", &password);
        let ran = output(with_environment);
        assert_eq!(ran.code, Some(0), "{url}: {ran:?}");
        // The control: the list shows what is in an environment.
        assert!(ran.stdout.contains(&password), "{ran:?}");
        let mut with_file = run();
        with_file.env("LEASEHOLD_PASSWORD_FILE", &file);
        let ran = output(with_file);
        assert_eq!(ran.code, Some(0), "{url}: {ran:?}");
        assert!(
            !ran.stdout.contains(&password),
            "it is in a list of processes"
        );
        let mut wrong = run();
        wrong.env("LEASEHOLD_PASSWORD", "wr0ng");
        let ran = output(wrong);
        assert_eq!(ran.code, Some(77), "{url}: {ran:?}");
        assert!(!ran.stderr.contains("wr0ng"), "{ran:?}");
    }
    let mut two = leasehold(["run", "a", "--url", &server.url(), "--", "true"]);
    two.env("LEASEHOLD_PASSWORD", &password);
    let ran = output(two);
    assert_eq!(ran.code, Some(64), "{ran:?}");
    assert!(!ran.stderr.contains(&password), "{ran:?}");
    let ran = output(leasehold([
        "run",
        "a",
        "--url",
        &tcp,
        "--password-file",
        "/no/file",
        "--",
        "true",
    ]));
    assert_eq!(ran.code, Some(74), "{ran:?}");
}

/// Catches a second process that keeps the password for as long as the command runs.
#[tokio::test]
async fn the_guard_does_not_have_the_password() {
    let server = RedisServer::config().password("s3cret").start().await;
    let args = ["run", "a", "--", "sh", "-c", "echo runs; read -r x"];
    let program = Program::spawn(on(&server, args));
    program.line("runs");
    let of = |process: &str, what: &str| {
        fs::read_to_string(format!("/proc/{process}/{what}")).expect("it runs")
    };
    let id = program.pid().to_string();
    let children = of(&id, &format!("task/{id}/children"));
    let is_guard = |child: &&str| of(child, "cmdline").starts_with("leasehold: guard");
    let guard = children
        .split_whitespace()
        .find(is_guard)
        .expect("it has a guard");
    assert!(!of(guard, "environ").contains("s3cret"));
    // The control.
    assert!(of(&id, "environ").contains("s3cret"));
}

#[tokio::test]
async fn a_lock_that_is_held_is_not_acquired_in_time() {
    let server = RedisServer::start().await;
    let mut holder = Program::spawn(on(&server, ["run", "a", "--", "sh", "-c", "echo up; cat"]));
    holder.line("up");
    let at_once = output(on(&server, ["run", "a", "--no-wait", "--", "echo", "ran"]));
    assert_eq!(
        (at_once.code, &*at_once.stdout),
        (Some(75), ""),
        "{at_once:?}"
    );
    assert!(at_once.stderr.contains("--wait"), "{at_once:?}");
    // The command lines of a row mean the same.
    let same: [&[&str]; 4] = [
        &["run", "a", "--wait", "0", "--", "echo", "ran"],
        &["run", "a", "--wait=0s", "--", "echo", "ran"],
        &["run", "a", "-w", "0.0s", "--", "echo", "ran"],
        &["run", "a", "-n", "--", "echo", "ran"],
    ];
    for args in same {
        let ran = output(on(&server, args));
        assert_eq!(
            (ran.code, &*ran.stdout, &*ran.stderr),
            (Some(75), "", &*at_once.stderr),
            "{args:?}"
        );
    }
    let fraction = output(on(&server, ["run", "a", "-w", "1.5s", "--", "echo", "ran"]));
    assert_eq!(fraction.code, Some(75), "{fraction:?}");
    assert!(fraction.took >= Duration::from_millis(1500), "{fraction:?}");
    let waited = output(on(
        &server,
        ["run", "a", "--wait", "1s", "--json", "--", "echo", "ran"],
    ));
    assert_eq!((waited.code, &*waited.stdout), (Some(75), ""), "{waited:?}");
    assert!(waited.took >= Duration::from_secs(1), "{waited:?}");
    assert!(
        waited
            .stderr
            .contains(r#"{"type":"waiting","name":"a","position":1}"#)
    );
    assert!(
        waited.stderr.contains(r#"{"type":"failed","exit":75,"#),
        "{waited:?}"
    );
    // The next one gets the lock as soon as it is free.
    let next = Program::spawn(on(&server, ["run", "a", "--json", "--", "echo", "ran"]));
    next.error_line(r#"{"type":"waiting""#);
    holder.close_stdin();
    next.line("ran");
    assert_eq!(holder.code().await, Some(0));
}

// The proxy runs while this thread waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_store_that_is_away_is_reported_within_the_wait() {
    let refused = leasehold_tests::FakeServer::start(|_| unreachable!("nobody connects")).await;
    let port = refused.port();
    drop(refused);
    let url = format!("redis://127.0.0.1:{port}");
    let ran = output(leasehold([
        "run", "a", "--url", &url, "--wait", "2s", "--", "true",
    ]));
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(ran.took < Duration::from_secs(3), "{ran:?}");

    // A store that accepts connections and never replies: from the start …
    let server = RedisServer::start().await;
    server.pause();
    let start = Instant::now();
    let ran = output(on(&server, ["run", "a", "--wait", "2s", "--", "true"]));
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(ran.stderr.contains("within 2s"), "{ran:?}");
    assert!(start.elapsed() < Duration::from_secs(3), "{ran:?}");
    server.resume();

    // … and from some time on.
    let proxy = Proxy::start(server.port()).await;
    let args = [
        "run",
        "a",
        "--url",
        &proxy.url(),
        "--wait",
        "2s",
        "--json",
        "--",
        "true",
    ];
    let holder = Program::spawn(on(&server, ["run", "a", "--", "sh", "-c", "echo up; cat"]));
    holder.line("up");
    let start = Instant::now();
    let mut waiter = Program::spawn(leasehold(args));
    waiter.error_line(r#"{"type":"waiting""#);
    proxy.set(Direction::Up, Mode::BlackHole);
    proxy.set(Direction::Down, Mode::BlackHole);
    let code = waiter.code().await;
    assert!(matches!(code, Some(69 | 75)), "{code:?}");
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn the_command_knows_its_lease() {
    let server = RedisServer::start().await;
    let script = "echo name $LEASEHOLD_NAME; echo token $LEASEHOLD_TOKEN; \
                  echo deadline $LEASEHOLD_DEADLINE; \
                  while read -r event <&$LEASEHOLD_EVENTS_FD; do echo $event; done";
    let args = ["run", "a b", "--ttl", "3s", "--", "sh", "-c", script];
    let program = Program::spawn(on(&server, args));
    assert_eq!(program.line("name"), "a b");
    let token: u64 = program.line("token").parse().expect("a number");
    let deadline: u128 = program.line("deadline").parse().expect("a number");
    let left = deadline.saturating_sub(crate::program::wall().as_millis());
    assert!((1..=3_000).contains(&left), "{left}");
    let begin = |kind| format!(r#"{{"type":"{kind}","name":"a b","token":{token},"#);
    program.line(&begin("acquired"));
    program.line(&begin("renewed"));
    let mut admin = leasehold_tests::Admin::connect(&server).await;
    let tenure = admin
        .tenure(&crate::program::key("a b"))
        .await
        .expect("held");
    assert_eq!(tenure.token, token);
}

#[tokio::test]
async fn what_the_command_left_running_ends_before_the_lock_is_free() {
    let server = RedisServer::start().await;
    // The command ignores SIGTERM, so it takes the whole grace period.
    let script =
        "(trap '' TERM; echo left; sleep 60; sleep 60) & sleep 0.2; echo leader $$; exit 3";
    let args = [
        "run", "a", "--ttl", "6s", "--grace", "1s", "--", "sh", "-c", script,
    ];
    let mut program = Program::spawn(on(&server, args));
    program.line("left");
    let group = crate::program::ProcessGroup::of(&program.line("leader"));
    program.error_line("leasehold: the command left processes behind");
    assert!(group.is_alive() && is_held(&server, "a").await);
    let free = eventually(LIMIT, "a free lock", async || !is_held(&server, "a").await);
    free.await;
    assert!(!group.is_alive(), "it outlived the lock");
    assert_eq!(program.code().await, Some(3));
}
