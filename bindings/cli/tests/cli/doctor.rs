//! `leasehold doctor` finds what is wrong with a store.

use std::io::Write;
use std::process::{Command, Stdio};

use leasehold_engine::protocol::Rights;
use leasehold_tests::{Admin, Authority, RedisServer, eventually};

use crate::program::{LIMIT, Output, Program, leasehold, on, output};

/// Returns the findings of a check, as JSON.
fn of<'a>(ran: &'a Output, check: &str) -> Vec<&'a str> {
    let begin = format!(r#"{{"check":"{check}","#);
    ran.stdout
        .lines()
        .filter(|line| line.starts_with(&begin))
        .collect()
}

fn is(ran: &Output, check: &str, level: &str) -> bool {
    let level = format!(r#""level":"{level}""#);
    of(ran, check).iter().any(|line| line.contains(&level))
}

fn doctor(server: &RedisServer) -> Output {
    output(on(server, ["doctor", "--json"]))
}

fn doctor_as(server: &RedisServer, user: &str) -> Output {
    let url = format!("redis://{user}:s3cret@127.0.0.1:{}", server.port());
    let ran = output(leasehold(["doctor", "--json", "--url", &url]));
    assert!(!format!("{ran:?}").contains("s3cret"));
    ran
}

/// Creates a user with the rights of the README and these changes.
async fn user(server: &RedisServer, name: &str, changes: &[&str]) {
    let all = [
        "on >s3cret ~{leasehold:* &leasehold:leasehold:* +select +ping +info",
        Rights::LOCKS,
        Rights::PUSHES,
        Rights::LIST,
        Rights::TRACKING,
    ];
    let rights = all.iter().flat_map(|rights| rights.split(' '));
    let mut command = vec!["ACL", "SETUSER", name];
    command.extend(rights.chain(changes.iter().copied()));
    Admin::connect(server).await.ok(&command).await;
}

/// Returns the printed advice on rights.
fn advised(ran: &Output) -> Vec<String> {
    let found = of(ran, "rights").into_iter();
    let found = found.map(|line| serde_json::from_str(line).expect("it is JSON"));
    let lines =
        found.filter_map(|found: serde_json::Value| found["do"].as_str().map(str::to_owned));
    lines.collect()
}

/// Types a line at redis-cli, and returns the output.
fn typed(server: &RedisServer, line: &str) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port().to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().expect("redis-cli is installed");
    let mut input = program.stdin.take().expect("it is piped");
    writeln!(input, "{line}").expect("it reads");
    drop(input);
    let said = program.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

#[tokio::test]
async fn a_healthy_server() {
    let server = RedisServer::start().await;
    let holder = Program::spawn(on(&server, ["run", "a", "--", "sh", "-c", "echo up; cat"]));
    holder.line("up");
    let waiter = Program::spawn(on(&server, ["run", "a", "--json", "--", "true"]));
    waiter.error_line(r#"{"type":"waiting""#);
    let ran = doctor(&server);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for check in [
        "reachable",
        "round trip",
        "clock",
        "version",
        "memory",
        "scripts",
        "rights",
        "pushes",
        "usable",
    ] {
        assert!(is(&ran, check, "good"), "{check}: {ran:?}");
    }
    assert!(
        is(&ran, "persistence", "note") && is(&ran, "replicas", "note"),
        "{ran:?}"
    );
    assert!(of(&ran, "locks")[0].contains("1 are held"), "{ran:?}");
    assert!(
        of(&ran, "line")[0].contains("that of a, with 1 waiting"),
        "{ran:?}"
    );
    assert!(
        of(&ran, "holder")[0].contains("which has held a for"),
        "{ran:?}"
    );
    drop((holder, waiter));
    // The doctor leaves nothing behind.
    let mut admin = Admin::connect(&server).await;
    eventually(LIMIT, "an end of its keys", async || {
        admin.keys("*doctor*").await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_server_that_gives_locks_away() {
    let server = RedisServer::config()
        .args(["--maxmemory-policy", "allkeys-lru"])
        .start()
        .await;
    let ran = doctor(&server);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        is(&ran, "eviction", "bad") && of(&ran, "eviction")[0].contains("noeviction"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_user_with_all_rights_that_are_needed_and_no_more() {
    let server = RedisServer::start().await;
    user(&server, "me", &[]).await;
    let ran = doctor_as(&server, "me");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(is(&ran, "rights", "good"), "{ran:?}");
}

#[tokio::test]
async fn each_right_that_is_missing() {
    let server = RedisServer::start().await;
    let cases = [
        ("-hdel", "bad", 2),
        ("-zcard", "bad", 2),
        ("resetkeys", "bad", 2),
        ("-zrangebyscore", "bad", 2),
        ("-evalsha", "bad", 2),
        ("-publish", "warning", 1),
        ("-subscribe", "warning", 1),
        ("-pubsub", "warning", 1),
        ("resetchannels", "warning", 1),
        ("-info", "note", 0),
        ("-scan", "note", 0),
        ("-client|tracking", "note", 0),
    ];
    for (right, level, code) in cases {
        user(&server, "me", &[right]).await;
        let ran = doctor_as(&server, "me");
        assert_eq!(ran.code, Some(code), "{right}: {ran:?}");
        let lacks = match right {
            "resetkeys" => "~{leasehold:*".to_owned(),
            "resetchannels" => "&leasehold:leasehold:*".to_owned(),
            "-pubsub" => "+pubsub|numsub".to_owned(),
            right => right.replace('-', "+"),
        };
        assert!(is(&ran, "rights", level), "{right}: {ran:?}");
        assert_eq!(
            advised(&ran),
            [format!("ACL SETUSER me {lacks}")],
            "{right}"
        );
        assert!(!ran.stdout.contains("proxies"), "{right}: {ran:?}");
    }
}

/// Catches advice that does not work as printed, or after which another right is missing.
#[tokio::test]
async fn advice_is_complete_and_applies_word_for_word() {
    let server = RedisServer::start().await;
    for (number, namespace) in ["leasehold", "shop:eu", r#"it's "my* [shop]"#, r"back\slash"]
        .into_iter()
        .enumerate()
    {
        let name = format!("user{number}");
        let mut admin = Admin::connect(&server).await;
        let few = ["ACL", "SETUSER", &name, "on", ">s3cret", "+time"];
        admin.ok(&few).await;
        let url = format!("redis://{name}:s3cret@127.0.0.1:{}", server.port());
        let look = || {
            let args = ["doctor", "--json", "--url", &url, "--namespace", namespace];
            output(leasehold(args))
        };
        let ran = look();
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let [line] = &advised(&ran)[..] else {
            panic!("there is one line: {ran:?}");
        };
        assert!(!format!("{ran:?}").contains("s3cret"));
        assert_eq!(typed(&server, line), "OK", "{line}");
        let ran = look();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            is(&ran, "rights", "good") && is(&ran, "pushes", "good"),
            "{ran:?}"
        );
        assert!(advised(&ran).is_empty(), "{ran:?}");
    }
}

#[tokio::test]
async fn a_user_without_messages() {
    let server = RedisServer::start().await;
    for change in ["-@pubsub", "-subscribe", "resetchannels"] {
        user(&server, "me", &[change]).await;
        let ran = doctor_as(&server, "me");
        assert_eq!(ran.code, Some(1), "{change}: {ran:?}");
        assert!(is(&ran, "pushes", "warning"), "{change}: {ran:?}");
    }
}

#[tokio::test]
async fn a_replica_and_its_primary() {
    let primary = RedisServer::start().await;
    let replica = RedisServer::config().replica_of(&primary).start().await;
    let mut admin = Admin::connect(&replica).await;
    eventually(LIMIT, "a replica", async || {
        admin
            .info("replication", "master_link_status")
            .await
            .as_deref()
            == Some("up")
    })
    .await;
    let ran = doctor(&replica);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        is(&ran, "replicas", "bad") && is(&ran, "usable", "bad"),
        "{ran:?}"
    );
    let ran = doctor(&primary);
    assert!(
        ran.code == Some(0) && of(&ran, "replicas")[0].contains("1 connected"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_server_with_another_clock() {
    for (off, way) in [(10, "ahead of"), (-10, "behind")] {
        let server = RedisServer::config().clock_off(off).start().await;
        let ran = doctor(&server);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        let clock = of(&ran, "clock");
        for part in [
            &format!("the server's clock is 10s {way} this machine's"),
            r#""level":"warning""#,
            "this does not shorten leases",
            "synchronize both",
        ] {
            assert!(clock[0].contains(part), "{part}: {ran:?}");
        }
        assert!(is(&ran, "usable", "good"), "{ran:?}");
        // Locks work anyway.
        let ran = output(on(&server, ["run", "a", "--", "true"]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_away() {
    let mut server = RedisServer::start().await;
    server.kill();
    let ran = doctor(&server);
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(ran.stderr.contains(r#""exit":69"#), "{ran:?}");
    let memory = output(leasehold(["doctor", "--url", "memory://"]));
    assert_eq!(memory.code, Some(0), "{memory:?}");
}

#[tokio::test]
async fn a_socket_with_a_password() {
    let server = RedisServer::config()
        .password("s3cret")
        .unix_socket()
        .start()
        .await;
    let url = format!("unix://{}", server.socket_path().display());
    let mut command = leasehold(["doctor", "--json", "--url", &url]);
    command.env("LEASEHOLD_PASSWORD", "s3cret");
    let ran = output(command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(is(&ran, "pushes", "good"), "{ran:?}");
}

/// Catches a separate connection that reads the URL differently from the locker.
#[tokio::test]
async fn a_server_behind_sentinels() {
    let primary = RedisServer::start().await;
    let sentinel = RedisServer::config().sentinel_of(&primary, 1).start().await;
    let mut admin = Admin::connect(&sentinel).await;
    let knows = async || {
        let state = admin.info("sentinel", "master0").await.unwrap_or_default();
        state.contains("status=ok")
    };
    eventually(LIMIT, "the sentinel to know the primary", knows).await;
    let url = format!("redis-sentinel://127.0.0.1:{}/mymaster", sentinel.port());
    let ran = output(leasehold(["doctor", "--json", "--url", &url]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(is(&ran, "pushes", "good"), "{ran:?}");
}

#[tokio::test]
async fn a_server_with_a_ca_of_its_own() {
    let ca = Authority::new("a CA of our own");
    let server = ca.start(&ca.server(&["127.0.0.1"]), false).await;
    let url = format!("rediss://127.0.0.1:{}", server.tls_port());
    let trusting = format!("{url}?ca={}", ca.file.display());
    let ran = output(leasehold(["doctor", "--json", "--url", &trusting]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(is(&ran, "pushes", "good"), "{ran:?}");
    // The control: without this CA the certificate is not trusted.
    let ran = output(leasehold(["doctor", "--json", "--url", &url]));
    assert_eq!(ran.code, Some(77), "{ran:?}");
}

/// Catches a client that trusts the system's CAs beside those of `ca`.
#[tokio::test]
async fn a_ca_of_its_own_replaces_those_of_the_system() {
    let (ca, stranger) = (Authority::new("the system's"), Authority::new("a stranger"));
    let server = ca.start(&ca.server(&["127.0.0.1"]), false).await;
    let url = format!("rediss://127.0.0.1:{}", server.tls_port());
    let inspected = |url: &str| {
        let mut command = leasehold(["inspect", "a", "--url", url]);
        command.env("SSL_CERT_FILE", &ca.file);
        output(command)
    };
    // The control: the system's CAs are trusted by default.
    let ran = inspected(&url);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = inspected(&format!("{url}?ca={}", stranger.file.display()));
    assert_eq!(ran.code, Some(77), "{ran:?}");
}

#[tokio::test]
async fn a_server_of_a_quorum_says_how_long_leases_live() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    admin
        .int(&["HSET", "{leasehold:}", "longest", "90000"])
        .await;
    let ran = doctor(&server);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(is(&ran, "quorum", "note"), "{ran:?}");
    for says in ["up to 1m30s", "DEL {leasehold:}"] {
        assert!(of(&ran, "quorum")[0].contains(says), "{ran:?}");
    }
    // A single server does not report it.
    admin.flushall().await;
    assert!(of(&doctor(&server), "quorum").is_empty());
}
