//! Texts of publishers, servers and callers.

use leasehold::{Locker, Name, Owner, Ticket};
use leasehold_engine::protocol::{LeaseId, LockKey, Pattern, Push, decode_push, server_error};

use crate::changes::{bytes, texts};
use crate::for_all;

const LEASE: LeaseId = LeaseId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
const SECRET: &str = "s3cret";
/// The longest error text. It may quote a name of 512 bytes, escaped, and 300 characters of the server.
const LONGEST_ERROR: usize = 4_096;

fn check(error: &leasehold::Error) {
    let text = error.to_string();
    assert!(text.len() < LONGEST_ERROR, "{} bytes", text.len());
    let shown = text
        .chars()
        .all(|shown| !shown.is_control() || shown == '\n');
    assert!(shown, "{text:?}");
}

/// Catches a push that nobody with the lease's ID has sealed, and a panic at a message that anybody may publish.
#[test]
fn a_push_is_opened_only_as_it_was_sealed() {
    const VALID: &[&str] = &[
        "granted:0011223344556677:1764230000000000:1764230030000:1764230000000000",
        "revoked:0011223344556677:1764230000000000",
        "completed:0011223344556677:7",
        "superseded:0011223344556677:7",
        "wanted:0011223344556677:7",
    ];
    let sealed: Vec<String> = VALID
        .iter()
        .map(|news| {
            let seal = "00".repeat(20);
            let push = decode_push(format!("{news}:{seal}").as_bytes()).expect("it is valid");
            Push::new(LEASE, push.news).to_string()
        })
        .collect();
    let sealed: Vec<&'static str> = sealed.into_iter().map(|push| &*push.leak()).collect();
    let sealed: &'static [&'static str] = sealed.leak();
    for_all(bytes(sealed), |message| {
        let Ok(push) = decode_push(&message) else {
            return;
        };
        // Capital letters and leading zeros change no value.
        let text = push.to_string();
        let is_sealed = sealed.contains(&&*text);
        assert_eq!(push.open(LEASE).is_some(), is_sealed, "{text}");
        assert_eq!(push.open(LeaseId(7)), None, "{text}");
    });
}

/// Catches a ticket that reads as another one than it writes, and an error that repeats a ticket's secret.
#[test]
fn a_ticket_reads_as_it_is_written() {
    const VALID: &[&str] = &[
        "leasehold-ticket:1:app:orders/42:1764230000000000:30000:0:00112233445566778899aabbccddeeff",
        "leasehold-ticket:1:a%3ab:a%20b%25:7:10:1764230000000:00112233445566778899aabbccddeeff",
    ];
    for valid in VALID {
        assert!(valid.parse::<Ticket>().is_ok(), "{valid}");
    }
    for_all(texts(VALID), |text| match text.parse::<Ticket>() {
        Ok(ticket) => assert_eq!(ticket.to_string().parse(), Ok(ticket)),
        Err(error) => {
            check(&error);
            assert!(!error.to_string().contains("8899aabb"), "{error}");
        }
    });
}

/// Catches a name whose key is that of another name or namespace.
#[test]
fn a_name_is_found_by_its_key_and_in_its_namespace_only() {
    const NAMES: &[&str] = &["orders/42", "a}{b:lock", "%7D%", "*?[a]\\", "ü\u{0}"];
    let pairs = (texts(NAMES), texts(&["leasehold", "a:b}", "sh*p"]));
    for_all(pairs, |(name, namespace)| {
        let key = match Name::new(&name).and_then(|name| LockKey::new(&namespace, &name)) {
            Ok(key) => key,
            Err(error) => return check(&error),
        };
        let all = Pattern::new(&namespace, "*").expect("a valid pattern");
        let found = all.name_of(key.lock());
        assert_eq!(found.as_ref().map(Name::as_str), Some(&*name));
        let other = Pattern::new(&format!("{namespace}x"), "*");
        assert!(other.is_err() || other.is_ok_and(|other| other.name_of(key.lock()).is_none()));
    });
    for_all(texts(NAMES), |text| {
        for made in [Owner::labelled(&text), Owner::reclaimable(&text)] {
            made.map_or_else(
                |error| check(&error),
                |owner| assert_eq!(owner.label(), text),
            );
        }
        Pattern::new("leasehold", &text).map_or_else(|error| check(&error), drop);
    });
}

/// Returns a URL without the parts that may be passwords or, without an `@`, stand where one was.
fn others(url: &str) -> String {
    let url = url.replace("sentinel_password=s3cret", "");
    let (scheme, rest) = url.split_once("//").unwrap_or((&url, ""));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let names = hosts.split(',').chain([user]);
    let names = names.map(|part| part.split(':').next().unwrap_or_default());
    [scheme, tail].into_iter().chain(names).collect()
}

/// Catches a password in an error, and a URL that panics.
#[test]
fn an_error_about_a_url_does_not_show_the_password() {
    const URLS: &[&str] = &[
        "redis://user:s3cret@127.0.0.1:6379/0",
        "rediss://:s3cret@[::1]:6380/15?ca=/tmp/ca.pem&server_name=redis",
        "redis-cluster://user:s3cret@a:1,b:2,c:3",
        "redis-sentinel://:s3cret@a:26379,b:26379/main/0?sentinel_password=s3cret",
        "unix://user:s3cret@/run/redis.sock?db=1",
        "memory://orders",
    ];
    for_all(texts(URLS), |url| {
        // A copy of the password elsewhere, such as in the name of a host or a file, is no password.
        if others(&url).contains(SECRET) {
            return;
        }
        let Err(error) = Locker::builder().fred_client(&url) else {
            return;
        };
        check(&error);
        assert!(!error.to_string().contains(SECRET), "{error}");
        assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
    });
}

/// Catches a server that fills logs or forges lines of them.
#[test]
fn a_servers_words_are_quoted_within_bounds() {
    const SAID: &[&str] = &[
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "NOPERM User poor has no permissions to run the 'evalsha' command",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MOVED 3999 127.0.0.1:6381",
        "READONLY You can't write against a read only replica.",
    ];
    let pairs = (texts(SAID), texts(&["{leasehold:orders/42}"]));
    for_all(pairs, |(said, key)| {
        check(&server_error(&said, Some(&key)));
        check(&server_error(&said.repeat(1_000), None));
    });
}
