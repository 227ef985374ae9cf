//! Quorums: several servers, of which a majority decides.

use std::net::TcpListener;

use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer, RedisService, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::page::{SERVE, started};
use crate::program::{LIMIT, Output, Program, leasehold, output};
use crate::serve::{first_event, metric, until_metric};

/// Three independent servers.
struct Servers([RedisServer; 3]);

impl Servers {
    async fn start() -> Self {
        Self([
            RedisServer::start().await,
            RedisServer::start().await,
            RedisServer::start().await,
        ])
    }

    fn urls(&self) -> Vec<String> {
        self.0.iter().map(RedisServer::url).collect()
    }

    /// Returns a command with an `--url` for each server.
    fn on(&self, args: &[&str]) -> std::process::Command {
        let urls = self.urls();
        let urls = urls.iter().flat_map(|url| ["--url", url]);
        let (task, rest) = args.split_first().expect("a task");
        leasehold([*task].into_iter().chain(urls).chain(rest.iter().copied()))
    }

    fn hold(&self, task: &str, name: &str) -> (Program, u64) {
        let script = "echo token $LEASEHOLD_TOKEN; cat";
        let args = [
            task, name, "--ttl", "10s", "--json", "--", "sh", "-c", script,
        ];
        let holder = Program::spawn(self.on(&args));
        let token = holder.line("token").parse().expect("a number");
        (holder, token)
    }

    async fn have(&self, pattern: &str) -> usize {
        let mut count = 0;
        for server in &self.0 {
            count += Admin::connect(server).await.keys(pattern).await.len();
        }
        count
    }
}

/// Returns the standard output of a command that succeeded and reported only this server as missing.
fn ok_without(url: &str, ran: Output) -> String {
    let says = format!("({url}) cannot be reached: the quorum goes on without it");
    assert!(ran.code == Some(0) && ran.stderr.contains(&says), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    ran.stdout
}

#[tokio::test]
async fn a_lock_is_taken_at_a_majority_and_outlives_a_server() {
    let mut servers = Servers::start().await;
    let (mut holder, token) = servers.hold("run", "a");
    assert!(servers.have("{leasehold:a}").await >= 2, "at a majority");
    let second = output(servers.on(&["run", "a", "-n", "--ttl", "5s", "--", "true"]));
    assert_eq!(second.code, Some(75), "{second:?}");

    // By then, a server that granted the lease after the two others counts, too.
    holder.error_line(r#"{"type":"renewed","name":"a""#);
    servers.0[0].kill();
    let second = output(servers.on(&["run", "a", "-n", "--ttl", "5s", "--", "true"]));
    assert_eq!(second.code, Some(75), "{second:?}");
    holder.error_line(r#"{"type":"renewed","name":"a""#);
    let missing = servers.0[0].url();
    let listed = output(servers.on(&["list", "--json"]));
    let listed: Value = serde_json::from_str(&ok_without(&missing, listed)).expect("one line");
    assert_eq!(listed["name"], "a");
    let inspected = output(servers.on(&["inspect", "a", "--json"]));
    let inspected = ok_without(&missing, inspected);
    let inspected: Value = serde_json::from_str(&inspected).expect("JSON");
    let of_holder = inspected["holder"]["token"].as_u64();
    assert!(of_holder.is_some_and(|seen| seen <= token), "{inspected}");

    // In the environment the URLs are a list.
    let seen = of_holder.expect("it is held").to_string();
    let mut list = leasehold(["release", "--force", "a", "--yes", "--token", &seen]);
    list.env("LEASEHOLD_URL", servers.urls().join(", "));
    assert!(ok_without(&missing, output(list)).starts_with("a was released"));
    holder.error_line(r#"{"type":"lost","name":"a""#);
    assert_eq!(holder.code().await, Some(79));
    let free = output(servers.on(&["run", "a", "-n", "--ttl", "5s", "--", "true"]));
    assert_eq!(free.code, Some(0), "{free:?}");

    // A minority grants no lock.
    servers.0[1].kill();
    let alone = output(servers.on(&["run", "a", "-w", "3s", "--", "true"]));
    assert_eq!(alone.code, Some(69), "{alone:?}");
    assert!(alone.stderr.contains("server 1"), "{alone:?}");
}

#[tokio::test]
async fn one_leads_and_what_happens_is_watched() {
    let mut servers = Servers::start().await;
    let watch = Program::spawn(servers.on(&["watch", "a", "--json", "--interval", "50ms"]));
    watch.line(r#"{"type":"free","name":"a""#);
    let (leader, _) = servers.hold("hold", "a");
    watch.line(r#"{"type":"held","name":"a""#);
    leader.error_line(r#"{"type":"renewed""#);
    servers.0[2].kill();
    let line = leader.error_line(r#"{"type":"renewed""#);
    assert!(line.contains(r#""name":"a""#), "{line}");
    leader.signal(Signal::SIGTERM);
    let free = watch.line(r#"{"type":"free","name":"a""#);
    assert!(free.contains(r#""reason":"released""#), "{free}");
}

#[tokio::test]
async fn a_server_that_says_nothing_leaves_time_for_the_others() {
    let servers = Servers::start().await;
    let mut urls = servers.urls();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("it is bound");
    urls[1] = format!("redis://:secret@{address}");
    for task in ["run a -w 4s -- true", "inspect a"] {
        let mut command = leasehold(task.split(' '));
        command.env("LEASEHOLD_URL", urls.join(" "));
        let ran = output(command);
        assert_eq!(ran.code, Some(0), "{task}: {ran:?}");
        let says = format!("server 2 of 3 (redis://{address}) cannot be reached");
        assert!(ran.stderr.contains(&says), "{task}: {ran:?}");
        assert!(!ran.stderr.contains("secret"), "{task}: {ran:?}");
    }
}

#[tokio::test]
async fn a_primary_behind_sentinels_may_be_one_of_the_servers() {
    let (servers, service) = (Servers::start().await, RedisService::start().await);
    let mut urls = servers.urls();
    urls[2] = service.url();
    let mut command = leasehold(["run", "a", "-n", "--", "sh", "-c", "echo ran"]);
    command.env("LEASEHOLD_URL", urls.join(","));
    let ran = output(command);
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "ran\n"), "{ran:?}");
    assert_eq!(ran.stderr, "");
    let mut primary = Admin::connect(&service.primary).await;
    assert!(!primary.keys("*").await.is_empty(), "it has voted");
}

#[tokio::test]
async fn no_message_shows_a_password() {
    let mut servers = Servers::start().await;
    let user = |url: String| url.replace("redis://", "redis://:secret@");
    let mut urls: Vec<_> = servers.urls().into_iter().map(user).collect();
    let say = |task: &str, urls: &[String]| {
        let mut command = leasehold(task.split(' '));
        command.env("LEASEHOLD_URL", urls.join(","));
        let ran = output(command);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!all.contains("secret"), "{task}: {all}");
        let names_it = ["server 2", r#""server":2"#]
            .iter()
            .any(|it| all.contains(it));
        assert!(names_it, "{task}: {all}");
        ran.code
    };
    servers.0[1].kill();
    for task in ["run a -- true", "inspect a", "doctor"] {
        let code = i32::from(task.starts_with("doctor"));
        assert_eq!(say(task, &urls), Some(code), "{task}");
    }
    servers.0[2].kill();
    let tasks = [
        "run a -- true",
        "list",
        "inspect a",
        "doctor",
        "doctor --json",
    ];
    for task in tasks {
        assert_eq!(say(task, &urls), Some(69), "{task}");
    }
    urls[1] = "redis://:secret@127.0.0.1:port".to_owned();
    for task in tasks.into_iter().chain(["serve"]) {
        assert_eq!(say(task, &urls), Some(64), "{task}");
    }
    urls[1] = "http://:secret@127.0.0.1".to_owned();
    assert_eq!(say("serve", &urls), Some(64));
}

#[tokio::test]
async fn lists_that_are_no_quorum_are_refused_with_the_reason() {
    let servers = Servers::start().await;
    let urls = servers.urls();
    let [one, two, three] = &urls[..] else {
        panic!("there are three");
    };
    let cluster = two.replace("redis://", "redis-cluster://");
    let cases: [(&[&str], i32, &str); 5] = [
        (&[one, two], 64, "3, 5 or 7 servers, not 2"),
        (&[one, two, one], 64, "server 3 of the quorum is server 1"),
        (&[one, two, "memory://x"], 64, "all Redis, or all in memory"),
        (
            &[one, &cluster, three],
            78,
            "server 2 of the quorum: a cluster",
        ),
        (&[one, "http://x", three], 64, "server 2 of the quorum"),
    ];
    for task in ["run", "doctor", "serve"] {
        for (urls, code, says) in cases {
            let ends: &[&str] = if task == "run" {
                &["a", "--", "true"]
            } else {
                &[]
            };
            let urls = urls.iter().flat_map(|url| ["--url", url]);
            let args = [task].into_iter().chain(urls).chain(ends.iter().copied());
            let ran = output(leasehold(args));
            assert_eq!(ran.code, Some(code), "{task}: {ran:?}");
            assert!(ran.stderr.contains(says), "{task}: {ran:?}");
        }
    }
}

#[tokio::test]
async fn a_lease_that_is_too_long_is_refused_with_the_option() {
    let servers = Servers::start().await;
    let ran = output(servers.on(&["run", "a", "--ttl", "90s", "--", "true"]));
    assert_eq!(ran.code, Some(64), "{ran:?}");
    assert!(ran.stderr.contains("--longest-ttl"), "{ran:?}");
    let short = ["run", "a", "--longest-ttl", "20s", "--", "true"];
    let ran = output(servers.on(&short));
    assert_eq!(ran.code, Some(64), "{ran:?}");
    let fits = [
        "run",
        "b",
        "--ttl",
        "90s",
        "--longest-ttl",
        "2m",
        "--",
        "true",
    ];
    assert_eq!(output(servers.on(&fits)).code, Some(0));
    let mut by_environment = servers.on(&["run", "b", "--ttl", "90s", "--", "true"]);
    by_environment.env("LEASEHOLD_LONGEST_TTL", "2m");
    assert_eq!(output(by_environment).code, Some(0));
    let ran = output(servers.on(&["run", "a", "--longest-ttl", "1ms", "--", "true"]));
    assert_eq!(ran.code, Some(64), "{ran:?}");
    assert!(ran.stderr.contains("longest_ttl must be from"), "{ran:?}");
}

/// Returns the findings of a check: the server, the level and the text.
fn found(ran: &Output, check: &str) -> Vec<(Option<u64>, String, String)> {
    let lines = ran.stdout.lines();
    let all = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.filter(|found| found["check"] == check)
        .map(|found| {
            (
                found["server"].as_u64(),
                text(&found["level"]),
                text(&found["what"]),
            )
        })
        .collect()
}

#[tokio::test]
async fn the_doctor_looks_at_each_server_and_at_all_of_them() {
    let mut servers = Servers::start().await;
    let healthy = output(servers.on(&["doctor", "--json"]));
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    for check in ["reachable", "round trip", "version", "rights"] {
        let of: Vec<_> = found(&healthy, check).iter().map(|found| found.0).collect();
        assert_eq!(of, [Some(1), Some(2), Some(3)], "{check}: {healthy:?}");
    }
    let votes = found(&healthy, "votes");
    assert_eq!(votes.len(), 1, "{healthy:?}");
    assert!(votes[0].0.is_none() && votes[0].1 == "good", "{votes:?}");
    assert!(votes[0].2.starts_with("3 of 3 servers vote"), "{votes:?}");

    let mut admin = Admin::connect(&servers.0[1]).await;
    admin
        .ok(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        .await;
    let evicting = output(servers.on(&["doctor", "--json"]));
    assert_eq!(evicting.code, Some(2), "{evicting:?}");
    let of: Vec<_> = found(&evicting, "eviction")
        .iter()
        .map(|found| found.0)
        .collect();
    assert_eq!(of, [Some(2)], "{evicting:?}");
    admin
        .ok(&["CONFIG", "SET", "maxmemory-policy", "noeviction"])
        .await;

    servers.0[2].kill();
    let ran = output(servers.on(&["doctor", "--json"]));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let missing = &found(&ran, "reachable")[2];
    assert_eq!((missing.0, &*missing.1), (Some(3), "warning"), "{ran:?}");
    let port = servers.0[2].port().to_string();
    assert!(missing.2.contains(&port), "{missing:?}");
    assert!(
        found(&ran, "votes")[0].2.starts_with("2 of 3 servers vote"),
        "{ran:?}"
    );
    let shown = output(servers.on(&["doctor"])).stdout;
    assert!(
        shown.contains("server 2 of 3 (redis://127.0.0.1:"),
        "{shown}"
    );

    // The server comes back without its data.
    servers.0[2].restart().await;
    let ran = output(servers.on(&["doctor", "--json"]));
    let votes = found(&ran, "votes");
    assert!(
        votes[0].2.starts_with("server 3 does not vote for another"),
        "{ran:?}"
    );
    assert!(votes[1].2.starts_with("2 of 3 servers vote"), "{ran:?}");

    servers.0[0].kill();
    servers.0[1].kill();
    let ran = output(servers.on(&["doctor", "--json"]));
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert_eq!(found(&ran, "reachable").len(), 3, "{ran:?}");
}

/// Catches a page that ends when its store goes down, or never reconnects.
#[tokio::test]
async fn the_page_begins_without_the_store_and_goes_on_with_a_majority() {
    let mut servers = Servers::start().await;
    let [one, two, _] = &mut servers.0;
    one.kill();
    two.kill();
    let (_serving, url) = started(servers.on(&SERVE));
    assert_eq!(
        metric(&url, "store_up"),
        0,
        "it says that the store is away"
    );
    servers.0[0].restart().await;
    until_metric(&url, "store_up", 1).await;
    let missing = |found: &&Value| found["check"] == "reachable";
    let found = eventually(LIMIT, "the missing server", async || {
        let (_page, all) = first_event(&url, "findings");
        all.as_array()
            .expect("a list")
            .iter()
            .find(missing)
            .cloned()
    });
    let found = found.await;
    assert_eq!(
        (&found["server"], &found["level"]),
        (&2.into(), &"warning".into())
    );
    let urls = servers.urls();
    let locker = Locker::quorum(&urls).await.expect("a majority is there");
    let lease = locker.lock("a").expect("valid").acquire().await;
    let _lease = lease.expect("it is free");
    until_metric(&url, "locks_held", 1).await;
}
