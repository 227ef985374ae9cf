//! `leasehold serve`, by plain HTTP requests.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use leasehold::Locker;
use leasehold_tests::{Authority, RedisServer, eventually};
use nix::sys::signal::Signal;

use crate::look::hold;
use crate::page::{SERVE, TOKEN, serve, serve_with_token, started};
use crate::program::{LIMIT, Program, is_held, leasehold, on, output};

/// A response: its head, with the status line, and its body.
struct Answer {
    head: String,
    body: String,
}

impl Answer {
    fn status(&self) -> u16 {
        let status = self.head.split(' ').nth(1).expect("a status");
        status.parse().expect("a number")
    }
}

/// Returns the address in a URL such as `http://127.0.0.1:1234/`.
fn address(url: &str) -> &str {
    let rest = url.trim_start_matches("http://");
    rest.split('/').next().expect("an address")
}

/// Sends one request. A given `Host` replaces the default.
fn ask(url: &str, request: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let address = address(url).replace("0.0.0.0", "127.0.0.1");
    let mut stream = TcpStream::connect(&address).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let mut text = format!(
        "{request} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    if !headers.iter().any(|(name, _)| *name == "Host") {
        let _ = write!(text, "Host: {address}\r\n");
    }
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    write!(stream, "{text}\r\n{body}").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    Answer {
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Opens a page. Returns its first event, and the connection, which keeps the page open.
fn open_page(url: &str) -> (TcpStream, serde_json::Value) {
    first_event(url, "hello")
}

/// Opens a page, and returns its first event of this kind.
pub(crate) fn first_event(url: &str, kind: &str) -> (TcpStream, serde_json::Value) {
    let mut stream = TcpStream::connect(address(url)).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let request = "GET /events HTTP/1.1\r\nHost: localhost\r\n";
    write!(stream, "{request}Authorization: Bearer {TOKEN}\r\n\r\n").expect("it reads");
    let (mut text, mut part) = (String::new(), [0; 512]);
    loop {
        let read = stream.read(&mut part).expect("it answers");
        text += std::str::from_utf8(&part[..read]).expect("text");
        let begin = format!("event: {kind}\ndata: ");
        let data = text.split_once(&begin).map(|(_, data)| data);
        if let Some((data, _)) = data.and_then(|data| data.split_once('\n')) {
            return (stream, serde_json::from_str(data).expect("JSON"));
        }
    }
}

/// Sends a GET request without further headers.
fn get(url: &str, path: &str) -> Answer {
    ask(url, &format!("GET {path}"), &[], "")
}

/// Returns a value of /metrics, such as `locks_held` or `ended_total,how="released"`.
pub(crate) fn metric(url: &str, name: &str) -> u64 {
    let (name, labels) = name.split_at(name.find(',').unwrap_or(name.len()));
    let begin = format!("leasehold_{name}{{namespace=\"leasehold\"{labels}}} ");
    let metrics = get(url, "/metrics").body;
    let number = metrics.lines().find_map(|line| line.strip_prefix(&begin));
    let number = number.and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no {begin}in {metrics}"))
}

/// Waits until a metric has this value.
pub(crate) async fn until_metric(url: &str, name: &str, number: u64) {
    eventually(LIMIT, name, async || metric(url, name) == number).await;
}

const JSON: (&str, &str) = ("Content-Type", "application/json");

#[tokio::test]
async fn the_table_and_the_numbers_can_be_read_by_programs() {
    let server = RedisServer::start().await;
    let (mut serving, url) = serve(&server, &["--poll-only"]);
    let (mut holder, token) = hold(&server, "a \"quoted\"");
    let held = eventually(LIMIT, "the lock to be seen", async || {
        let locks = get(&url, "/api/locks");
        let rows: serde_json::Value = serde_json::from_str(&locks.body).expect("JSON");
        Some(rows[0].clone()).filter(|row| row["holder"]["token"] == token)
    });
    let held = held.await;
    assert_eq!(held["name"], "a \"quoted\"");
    assert_eq!(held["waiting"], 0);
    assert!(
        held["holder"]["remaining"]
            .as_u64()
            .is_some_and(|left| left <= 40_000),
        "{held}"
    );
    let metrics = get(&url, "/metrics").body;
    let gauge = "# TYPE leasehold_locks_held gauge";
    assert!(metrics.lines().any(|line| line == gauge), "{metrics}");
    for (name, number) in [
        ("locks_held", 1),
        ("waiting", 0),
        ("store_up", 1),
        ("waited_seconds_bucket,le=\"+Inf\"", 0),
    ] {
        assert_eq!(metric(&url, name), number, "{name}");
    }
    let share = |name, part: &[&str]| {
        let args = ["run", name].into_iter().chain(part.iter().copied());
        Program::spawn(on(&server, args.chain(["--", "cat"])))
    };
    // Catches: slots of one name alone, permits that count as slots, and units that are added up.
    let _two = share("render", &["--slots", "3", "--weight", "2"]);
    let _one = share("import", &["--slots", "10"]);
    let _reader = share("prices", &["--read"]);
    until_metric(&url, "slots_in_use", 3).await;
    until_metric(&url, "permits_held,sharing=\"access\"", 1).await;
    let _waits = share("render", &["--slots", "3", "--weight", "2"]);
    until_metric(&url, "permits_waiting,sharing=\"slots\"", 1).await;
    assert_eq!(metric(&url, "permits_held,sharing=\"slots\""), 2);
    assert_eq!(metric(&url, "slots_capacity"), 13);
    let fullest = "leasehold_fullest_ratio{namespace=\"leasehold\",sharing=\"slots\"} 0.666";
    let metrics = get(&url, "/metrics").body;
    assert!(
        metrics.lines().any(|line| line.starts_with(fullest)),
        "{metrics}"
    );
    let locks = get(&url, "/api/locks").body;
    assert!(locks.contains("\"summary\":\"2 of 3 slots\""), "{locks}");
    holder.close_stdin();
    until_metric(&url, "ended_total,how=\"released\"", 1).await;
    assert!(!get(&url, "/metrics").body.contains("quoted"));
    assert_eq!(get(&url, "/nothing").status(), 404);
    serving.signal(Signal::SIGINT);
    assert_eq!(serving.code().await, Some(0));
}

/// Catches acquisitions that are not counted although their ends are, and history that is lost when a page is
/// closed.
#[tokio::test]
async fn what_begins_and_ends_is_counted_and_kept() {
    let server = RedisServer::start().await;
    let (mut old, _) = hold(&server, "old");
    let (_serving, url) = serve(&server, &["--poll-only"]);
    until_metric(&url, "locks_held", 1).await;
    let acquired = || metric(&url, "acquired_total");
    assert_eq!(acquired(), 0, "it began before the page");
    let (mut new, token) = hold(&server, "new");
    until_metric(&url, "acquired_total", 1).await;
    old.close_stdin();
    new.close_stdin();
    until_metric(&url, "ended_total,how=\"released\"", 2).await;
    assert_eq!(acquired(), 1);
    // A page that is opened now still gets the whole history.
    let history = get(&url, "/api/history?name=new");
    let history: serde_json::Value = serde_json::from_str(&history.body).expect("JSON");
    let events = history["events"].as_array().expect("events");
    let kinds: Vec<_> = events.iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["acquired", "released"], "{history}");
    assert_eq!(events[0]["token"], token);
    assert_eq!(get(&url, "/api/history").status(), 400);
}

#[tokio::test]
async fn a_lease_that_nobody_renews_is_seen_to_expire() {
    let server = RedisServer::start().await;
    let (_serving, url) = serve(&server, &["--poll-only"]);
    let locker = Locker::connect(server.url()).await.expect("it is there");
    let lock = locker.lock("a").expect("a valid name").fixed();
    let lock = lock.ttl(Duration::from_secs(3));
    let _lease = lock.acquire().await.expect("it is free");
    until_metric(&url, "ended_total,how=\"expired\"", 1).await;
}

#[tokio::test]
async fn the_page_says_what_a_browser_may_do_with_it() {
    let server = RedisServer::start().await;
    let (_serving, url) = serve(&server, &[]);
    let page = get(&url, "/");
    assert_eq!(page.status(), 200);
    for header in [
        "content-security-policy: default-src 'none'; script-src 'nonce-",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert!(page.head.contains(header), "{header}: {}", page.head);
    }
    let again = get(&url, "/");
    assert_ne!(page.body, again.body, "each has a nonce of its own");
    for path in ["/nothing", "/metrics", "/api/locks"] {
        let answer = get(&url, path);
        assert!(answer.head.contains("default-src 'none'"), "{path}");
    }
}

#[tokio::test]
async fn other_sites_get_nothing() {
    let server = RedisServer::start().await;
    let (_serving, url) = serve(&server, &["--host", "locks.example"]);
    for (host, code) in [
        ("localhost:1", 200),
        ("locks.example", 200),
        ("evil.example", 421),
    ] {
        let answer = ask(&url, "GET /api/locks", &[("Host", host)], "");
        assert_eq!(answer.status(), code, "{host}");
    }
    for headers in [
        [("Origin", "http://evil.example")],
        [("Sec-Fetch-Site", "cross-site")],
    ] {
        for path in ["/api/locks", "/events", "/metrics"] {
            let answer = ask(&url, &format!("GET {path}"), &headers, "");
            assert_eq!(answer.status(), 403, "{path} {headers:?}");
        }
    }
}

#[tokio::test]
async fn nothing_is_released_without_leave() {
    let server = RedisServer::start().await;
    let (_holder, token) = hold(&server, "a");
    let release = |url: &str, view: &str, token: u64, headers: &[(&str, &str)]| {
        let body = format!(r#"{{"view":"{view}","name":"a","token":{token}}}"#);
        let bearer = format!("Bearer {TOKEN}");
        let headers = [&[("Authorization", bearer.as_str())], headers].concat();
        ask(url, "POST /api/release", &headers, &body)
    };
    let (_serving, url) = serve(&server, &[]);
    let (_open, hello) = open_page(&url);
    let view = hello["view"].as_str().expect("an id");
    assert_eq!(release(&url, view, token, &[JSON]).status(), 403);

    let (_serving, url) = serve_with_token(&server, &["--allow-release"]);
    let (open, hello) = open_page(&url);
    let view = hello["view"].as_str().expect("an id");
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    assert_eq!(release(&url, view, token, &form).status(), 415);
    let other = [JSON, ("Origin", "http://evil.example")];
    assert_eq!(release(&url, view, token, &other).status(), 403);
    assert_eq!(release(&url, "0000", token, &[JSON]).status(), 410);
    let stale = release(&url, view, token - 1, &[JSON]);
    assert_eq!(stale.status(), 409, "{}", stale.body);
    assert!(is_held(&server, "a").await);
    assert_eq!(release(&url, view, token, &[JSON]).status(), 204);
    assert!(!is_held(&server, "a").await);
    drop(open);
    eventually(LIMIT, "the page to be closed", async || {
        release(&url, view, token, &[JSON]).status() == 410
    })
    .await;
    let unknown = ask(&url, "POST /api/release", &[JSON], "{}");
    assert_eq!(unknown.status(), 401);
    let (_serving, url) = serve(&server, &[]);
    for body in ["", "{}", "[1]", r#"{"view":"x","names":[""],"open":null}"#] {
        let answer = ask(&url, "POST /api/view", &[JSON], body);
        assert_eq!(answer.status(), 400, "{body}");
    }
    let large = "x".repeat(200_000);
    assert_eq!(ask(&url, "POST /api/view", &[JSON], &large).status(), 413);
}

#[tokio::test]
async fn other_machines_need_a_token() {
    let server = RedisServer::start().await;
    let args = ["serve", "--listen", "0.0.0.0:0"];
    let serving = Program::spawn(on(&server, args));
    let url = serving.line("serving ");
    serving.error_line("leasehold: what is sent is not encrypted");
    let token = url.split_once("?token=").expect("a token was made").1;
    assert_eq!(token.len(), 32);
    assert_eq!(get(&url, "/").status(), 401);
    let bearer = format!("Bearer {token}");
    let page = ask(&url, "GET /", &[("Authorization", &bearer)], "");
    assert_eq!(page.status(), 200);
    assert!(!page.body.contains(token) && !page.head.contains(token));
    let admitted = get(&url, &format!("/?token={token}"));
    assert_eq!(admitted.status(), 303);
    assert!(!admitted.head.contains(token), "{}", admitted.head);
    let cookie = admitted
        .head
        .split_once("set-cookie: ")
        .expect("a cookie")
        .1;
    let (cookie, more) = cookie.split_once(';').expect("a value");
    let path = admitted.head.split_once("location: ").expect("a path").1;
    let path = path.lines().next().expect("a line");
    assert!(more.starts_with(&format!(" Path={path};")), "{more}");
    for (place, code) in [(path, 200), ("/", 401), ("/elsewhere/", 401)] {
        let request = format!("GET {place}metrics");
        let answer = ask(&url, &request, &[("Cookie", cookie)], "");
        assert_eq!(answer.status(), code, "{place}");
    }
    let page = ask(&url, &format!("GET {path}"), &[("Cookie", cookie)], "");
    assert_eq!(page.status(), 200);
}

/// Catches clients that keep others out by requests that never end.
#[tokio::test]
async fn requests_that_never_end_keep_nobody_out() {
    let server = RedisServer::start().await;
    let (_serving, url) = serve(&server, &[]);
    let (mut open, _) = open_page(&url);
    let stall = || {
        let mut stream = TcpStream::connect(address(&url)).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
        let head =
            "POST /api/view HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        write!(stream, "{head}Content-Length: 100\r\n\r\n{{").expect("it reads");
        stream
    };
    let mut stalled: Vec<_> = (0..256).map(|_| stall()).collect();
    let start = Instant::now();
    assert_eq!(get(&url, "/api/locks").status(), 200);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    // A page that was open stays open.
    let more = open.read(&mut [0; 512]).expect("it goes on");
    assert!(more > 0);
    // The server does not wait for the last request's body either.
    let mut answer = String::new();
    let last = stalled.last_mut().expect("there are many");
    last.read_to_string(&mut answer).expect("it ends");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("did not arrive within 5 s"), "{answer}");
}

/// Catches a connection for tracking that does not know the CA.
#[tokio::test]
async fn a_server_with_a_ca_of_its_own_is_followed() {
    let ca = Authority::new("a CA of our own");
    let server = ca.start(&ca.server(&["127.0.0.1"]), false).await;
    let trusting = format!(
        "rediss://127.0.0.1:{}?ca={}",
        server.tls_port(),
        ca.file.display()
    );
    let (_serving, url) = started(leasehold(SERVE.iter().chain(&["--url", &trusting])));
    until_metric(&url, "follows", 1).await;
    // The control: a client that does not know the CA is refused.
    let url = format!("rediss://127.0.0.1:{}", server.tls_port());
    let ran = output(leasehold(["list", "--url", &url]));
    assert_eq!(ran.code, Some(77), "{ran:?}");
    assert!(ran.stderr.contains("certificate"), "{ran:?}");
}

/// Catches a busy server that also has to report every change.
#[tokio::test]
async fn a_busy_server_is_not_followed() {
    let server = RedisServer::start().await;
    let (_serving, url) = serve(&server, &[]);
    until_metric(&url, "follows", 1).await;
    // The server reports once in each turn of its event loop, in which it reads at most one value of this size.
    let value = "x".repeat(40_000);
    let change = format!("*3\r\n$3\r\nSET\r\n$12\r\n{{leasehold:a\r\n$40000\r\n{value}\r\n");
    let changes = change.repeat(400);
    let mut client = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    eventually(LIMIT, "the end of the reports", async || {
        client.write_all(changes.as_bytes()).expect("it reads");
        metric(&url, "follows") == 0
    })
    .await;
}

#[tokio::test]
async fn where_it_is_can_be_read_by_programs() {
    let args = SERVE.iter().chain(&["--demo", "--json"]);
    let mut demo = Program::spawn(leasehold(args));
    let line = demo.line(r#"{"type":"serving","url":""#);
    let url = line.trim_end_matches("\"}");
    eventually(LIMIT, "something to happen", async || {
        metric(url, "acquired_total") > 0
    })
    .await;
    let (_open, hello) = open_page(url);
    assert_eq!(
        (&hello["demo"], &hello["release"]),
        (&true.into(), &false.into())
    );
    // An open page does not delay the end.
    demo.signal(Signal::SIGTERM);
    assert_eq!(demo.code().await, Some(0));
}

#[tokio::test]
async fn no_password_is_shown() {
    let server = RedisServer::config().password("s3cret").start().await;
    let (serving, url) = serve(&server, &[]);
    let (_open, hello) = open_page(&url);
    assert_eq!(
        hello["store"],
        format!("redis://127.0.0.1:{}", server.port())
    );
    for path in ["/", "/api/locks", "/metrics"] {
        let answer = get(&url, path);
        assert!(!answer.body.contains("s3cret"), "{path}");
    }
    assert!(!hello.to_string().contains("s3cret"));
    assert_eq!(serving.unread_errors(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_served_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let folder = tempfile::TempDir::new().expect("a folder");
    let short = folder.path().join("token");
    std::fs::write(&short, "short\n").expect("a file");
    let short = short.to_str().expect("text").to_owned();
    for (args, code, says) in [
        (
            &["--demo", "--listen", &taken][..],
            64,
            "give another --listen",
        ),
        (&["--demo", "--listen", "localhost"], 64, "--listen"),
        (&["--demo", "--looks", "0"], 64, "--looks"),
        (
            &["--demo", "--token-file", &short],
            64,
            "16 to 256 characters",
        ),
        (&["--demo", "--token-file", "/nowhere"], 74, "/nowhere"),
        (
            &["--demo", "--allow-release"],
            64,
            "--allow-release needs a token: without one every user and program of this machine could release \
             locks; set LEASEHOLD_SERVE_TOKEN",
        ),
        (&["--url", "http://127.0.0.1:1"], 64, "redis://"),
        (&[], 64, "no store is named"),
    ] {
        let ran = output(leasehold(["serve"].iter().chain(args)));
        assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {ran:?}");
    }
}

/// Catches a page that ends because its store is down at the start.
#[tokio::test]
async fn a_store_that_is_away_at_first_is_found_when_it_comes() {
    let mut server = RedisServer::start().await;
    server.kill();
    let (_serving, url) = serve(&server, &[]);
    assert_eq!(metric(&url, "store_up"), 0);
    assert_eq!(get(&url, "/").status(), 200);
    let (_page, sum) = first_event(&url, "sum");
    assert_eq!(sum["store"]["state"], "away", "{sum}");
    let address = format!("127.0.0.1:{}", server.port());
    assert!(sum.to_string().contains(&address), "{sum}");
    server.restart().await;
    until_metric(&url, "store_up", 1).await;
    let _holder = hold(&server, "a");
    until_metric(&url, "locks_held", 1).await;
}
