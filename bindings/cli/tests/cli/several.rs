//! `leasehold run` with several names.

use leasehold_tests::{Admin, RedisServer};
use nix::sys::signal::Signal;

use crate::program::{Program, is_held, key, on, output};

/// Prints the environment of the command, and waits until its standard input is closed.
const SCRIPT: &str = "trap 'echo ended; exit 9' TERM; \
                      echo env $LEASEHOLD_TOKENS, ${LEASEHOLD_TOKEN-none} ${LEASEHOLD_NAME-none}; cat";

fn hold(server: &RedisServer, names: &[&str]) -> (Program, Vec<u64>) {
    let (begin, end) = (["run", "--ttl", "3s"], ["--", "sh", "-c", SCRIPT]);
    let mut command = on(server, begin.iter().chain(names).chain(&end));
    // As within another `leasehold run`.
    command
        .env("LEASEHOLD_TOKEN", "7")
        .env("LEASEHOLD_NAME", "outer");
    let holder = Program::spawn(command);
    let line = holder.line("env ");
    let (tokens, others) = line.trim_end().split_once(", ").expect("a comma");
    assert_eq!(others, "none none", "a token of another name");
    let tokens = tokens
        .split(' ')
        .map(|token| token.parse().expect("a token"));
    (holder, tokens.collect())
}

/// Catches a name that is not taken, tokens in another order than the names, and a name that stays behind.
#[tokio::test]
async fn all_names_are_held_while_the_command_runs() {
    let server = RedisServer::start().await;
    // So that the names have different tokens.
    assert_eq!(
        output(on(&server, ["run", "a", "--", "true"])).code,
        Some(0)
    );
    let (mut holder, tokens) = hold(&server, &["b", "a"]);
    for (name, token) in ["b", "a"].iter().zip(&tokens) {
        let seen = output(on(&server, ["inspect", name, "--json"])).stdout;
        let seen: serde_json::Value = serde_json::from_str(&seen).expect("JSON");
        assert_eq!(seen["holder"]["token"], *token, "{name}");
    }
    for names in [&["a"][..], &["b"], &["c", "b"]] {
        let args = ["run", "--no-wait"]
            .iter()
            .chain(names)
            .chain(&["--", "true"]);
        let busy = output(on(&server, args));
        assert_eq!(busy.code, Some(75), "{busy:?}");
    }
    let args = ["run", "c", "b", "--wait", "2s", "--", "true"];
    let busy = output(on(&server, args));
    assert!(
        busy.stderr
            .contains("c, b were not acquired within 2s: somebody else holds one of them"),
        "{busy:?}"
    );
    holder.close_stdin();
    assert_eq!(holder.code().await, Some(0));
    for name in ["a", "b", "c"] {
        assert!(!is_held(&server, name).await, "{name}");
    }
}

/// Catches two runs that wait for each other.
#[tokio::test]
async fn the_order_of_the_names_does_not_matter() {
    let server = RedisServer::start().await;
    let start = |names: [&str; 3]| {
        let script = "for i in 1 2 3 4 5 6 7 8; do \"$0\" run \"$@\" --wait 30s -- true || exit 1; done; echo done";
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", script, crate::program::LEASEHOLD])
            .args(names);
        command.env("LEASEHOLD_URL", server.url());
        Program::spawn(command)
    };
    let mut runs = [
        start(["a", "b", "c"]),
        start(["c", "b", "a"]),
        start(["b", "c", "a"]),
    ];
    for run in &mut runs {
        run.line("done");
        assert_eq!(run.code().await, Some(0));
    }
}

/// Catches a loss of the second name that is not noticed, or is told of another name.
#[tokio::test]
async fn the_loss_of_any_name_ends_the_command() {
    let server = RedisServer::start().await;
    let (mut holder, _) = hold(&server, &["a", "b"]);
    Admin::connect(&server).await.int(&["DEL", &key("b")]).await;
    holder.line("ended");
    holder.error_line("leasehold: the lease on b was lost while the command ran: ");
    assert_eq!(holder.code().await, Some(79));
    assert!(!is_held(&server, "a").await);
}

/// Catches a signal that leaves names behind while the next one is awaited.
#[tokio::test]
async fn ending_a_run_that_waits_releases_what_it_has() {
    let server = RedisServer::start().await;
    let (_holder, _) = hold(&server, &["b", "z"]);
    let mut waits = Program::spawn(on(&server, ["run", "a", "b", "--json", "--", "true"]));
    waits.error_line(r#"{"type":"waiting","name":"b""#);
    assert!(is_held(&server, "a").await);
    waits.signal(Signal::SIGTERM);
    assert_eq!(waits.code().await, Some(143));
    assert!(!is_held(&server, "a").await);
}

#[tokio::test]
async fn bad_lists_of_names_are_refused_with_their_reason() {
    let server = RedisServer::start().await;
    let cases = [
        (&["a", "a"][..], "twice"),
        (&["a", ""], "name"),
        (&["a", "b", "--slots", "2"], "one name only"),
        (&["a", "b", "--read"], "one name only"),
        (&["a", "b", "--once", "7"], "one name only"),
        (&["a", "b", "--every", "1m"], "one name only"),
        (&["a", "b", "--at-least", "60s"], "one name only"),
        (&[], "<NAME>"),
    ];
    for (names, says) in cases {
        let ran = output(on(
            &server,
            ["run"].iter().chain(names).chain(&["--", "true"]),
        ));
        assert_eq!(ran.code, Some(64), "{ran:?}");
        assert!(ran.stderr.contains(says), "{ran:?}");
    }
}
