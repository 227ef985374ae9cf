//! Hostile tenants of one server.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind, FencingToken, Lease, Locker, LossReason, Name};
use leasehold_engine::protocol::{LockKey, Rights};
use leasehold_tests::{Admin, RedisServer, Resp, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::LIMIT;
use crate::rights::{denials, named_for, user};

/// Longer than a push takes, shorter than finding out without one.
const AT_ONCE: Duration = Duration::from_secs(2);

struct Tenant {
    url: String,
    user: String,
    namespace: &'static str,
}

impl Tenant {
    /// Makes a tenant with the rights for tenants who distrust one another.
    async fn new(server: &RedisServer, admin: &mut Admin, namespace: &'static str) -> Self {
        Self::with(server, admin, namespace, "").await
    }

    async fn with(
        server: &RedisServer,
        admin: &mut Admin,
        namespace: &'static str,
        more: &str,
    ) -> Self {
        let rights = named_for(namespace);
        let rights = rights.iter().map(String::as_str);
        let rights: Vec<_> = rights.chain(more.split_whitespace()).collect();
        // Only characters that need no escape in a URL.
        let name = namespace.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let url = user(server, admin, &name, &rights).await;
        Self {
            url,
            user: name,
            namespace,
        }
    }

    fn key(&self, name: &str) -> LockKey {
        let name = Name::new(name).expect("a valid name");
        LockKey::new(self.namespace, &name).expect("a valid namespace")
    }

    /// Returns the channels of all lockers of the tenant.
    fn channels(&self) -> String {
        Rights::new(self.namespace).channels()[1..].to_owned()
    }

    async fn locker(&self) -> Locker {
        let builder = Locker::builder().namespace(self.namespace);
        let locker = builder.connect(&self.url).await;
        locker.expect("the rights are enough")
    }
}

/// A tenant's activity: it holds one lock, and another one that has a waiter.
struct Business {
    locker: Locker,
    held: Lease,
    contended: Lease,
    waits: JoinHandle<Result<Lease, Error>>,
}

impl Business {
    async fn start(tenant: &Tenant, admin: &mut Admin, names: [&str; 2]) -> Self {
        let pattern = tenant.channels();
        let before = channels(admin, &pattern).await;
        let (locker, other) = (tenant.locker().await, tenant.locker().await);
        let lock = |locker: &Locker, name| {
            let lock = locker.lock(name).expect("a valid name");
            lock.ttl(Duration::from_secs(30))
        };
        let held = lock(&locker, names[0]).acquire().await;
        let contended = lock(&locker, names[1]).acquire().await;
        let next = lock(&other, names[1]);
        let waits = tokio::spawn(async move { next.acquire().await });
        let listens = async || {
            let all = channels(admin, &pattern).await;
            all.iter().filter(|one| !before.contains(one)).count() == 2
        };
        eventually(LIMIT, "both lockers subscribe", listens).await;
        let in_line = async || {
            let seen = locker.inspect(names[1]).await.expect("an answer");
            seen.waiting == 1
        };
        eventually(LIMIT, "the waiter is in line", in_line).await;
        Self {
            held: held.expect("a free lock"),
            contended: contended.expect("a free lock"),
            locker,
            waits,
        }
    }

    /// Checks that no lease was lost, no message was believed, and real pushes still arrive at once. Returns
    /// the waiter's lease.
    async fn goes_on(self) -> Lease {
        assert!(self.held.is_valid() && self.contended.is_valid());
        assert!(!self.waits.is_finished(), "the waiter was handed no lock");
        self.held.renew().await.expect("a held lock");
        let (last, begin) = (self.contended.token(), Instant::now());
        self.contended.release().await.expect("a held lock");
        let next = self.waits.await.expect("no panic");
        let next = next.expect("the waiter is handed the lock");
        assert!(next.token() > last && next.token() < FencingToken::MAX);
        let freed = self.locker.force_release(self.held.name().as_str()).await;
        assert!(freed.expect("an answer").is_some());
        assert_eq!(self.held.lost().await.reason, LossReason::Revoked);
        let took = begin.elapsed();
        assert!(took < AT_ONCE, "the holder was notified after {took:?}");
        assert!(next.is_valid());
        next
    }
}

async fn channels(admin: &mut Admin, pattern: &str) -> Vec<String> {
    match admin.command(&["PUBSUB", "CHANNELS", pattern]).await {
        Resp::Array(channels) => channels.iter().filter_map(Resp::as_string).collect(),
        other => panic!("expected channels, got {other:?}"),
    }
}

async fn connection(server: &RedisServer, tenant: &str) -> Admin {
    let mut connection = Admin::connect(server).await;
    connection.ok(&["AUTH", tenant, "s3cret"]).await;
    connection
}

fn is_refused(answer: &Resp) -> bool {
    let Resp::Error(text) = answer else {
        return false;
    };
    ["NOPERM", "ERR The user executing", "can't", "ACL failure"]
        .iter()
        .any(|part| text.contains(part))
}

/// Catches rights that reach beyond a namespace. Another test shows which names a tenant with tracking sees.
#[tokio::test]
async fn tenants_cannot_reach_each_other() {
    // The name of one is a prefix of the other's.
    cannot_reach_each_other("red", "re", "").await;
    // `~{a:b:*` also covers the lock `b:payroll` of `a`.
    cannot_reach_each_other("a", "a:b", "").await;
    cannot_reach_each_other("st*r", "stir", "").await;
    cannot_reach_each_other("red", "re", Rights::TRACKING).await;
}

async fn cannot_reach_each_other(one: &'static str, other: &'static str, more: &str) {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let red = Tenant::with(&server, &mut admin, one, more).await;
    let blue = Tenant::with(&server, &mut admin, other, more).await;
    for (victim, hostile) in [(&red, &blue), (&blue, &red)] {
        let business = Business::start(victim, &mut admin, ["held", "contended"]).await;
        let mut attack = connection(&server, &hostile.user).await;
        let lock = victim.key("held");
        let lock = lock.lock();
        let line = victim.key("contended").line();
        let channel = &channels(&mut admin, &victim.channels()).await[0];
        for command in [
            // Keys, by commands and by scripts, declared or not.
            &format!("HGETALL {lock}"),
            &format!("HSET {lock} t 1"),
            &format!("HDEL {lock} t"),
            &format!("DEL {lock}"),
            &format!("SET {lock} x"),
            &format!("PEXPIREAT {lock} 1"),
            &format!("ZRANGE {line} 0 -1"),
            &format!("ZREM {line} x"),
            &format!("EXISTS {lock}"),
            &format!("EVAL return(redis.call('HGETALL',KEYS[1])) 1 {lock}"),
            &format!("EVAL return(redis.call('HDEL','{lock}','t')) 0"),
            &format!("EVAL return(redis.call('DEL','{lock}')) 0"),
            &format!("EVAL return(redis.call('PUBLISH','{channel}','x')) 0"),
            "EVAL return(redis.call('FLUSHALL')) 0",
            "EVAL return(redis.call('KEYS','*')) 0",
            &format!("RENAME {lock} x"),
            &format!("COPY {lock} x"),
            &format!("DUMP {lock}"),
            &format!("RESTORE {lock} 0 x"),
            &format!("MIGRATE 127.0.0.1 1 {lock} 0 1"),
            &format!("OBJECT ENCODING {lock}"),
            &format!("WATCH {lock}"),
            &format!("UNLINK {lock}"),
            &format!("TOUCH {lock}"),
            "RANDOMKEY",
            "KEYS *",
            "SCAN 0",
            "DBSIZE",
            // The whole server.
            "FLUSHALL",
            "FLUSHDB",
            "SWAPDB 0 1",
            "SELECT 1",
            "SCRIPT FLUSH",
            "SCRIPT KILL",
            "FUNCTION FLUSH",
            "FUNCTION LOAD x",
            "CONFIG GET *",
            "CONFIG SET maxmemory 1",
            "SHUTDOWN",
            "REPLICAOF 127.0.0.1 1",
            "ACL LIST",
            "ACL SETUSER x",
            "MONITOR",
            "SLOWLOG GET",
            "LATENCY RESET",
            "MEMORY DOCTOR",
            "CLIENT LIST",
            "CLIENT KILL TYPE normal",
            "CLIENT KILL TYPE pubsub",
            "CLIENT PAUSE 1000",
            "CLIENT TRACKING ON BCAST",
            "SYNC",
            "PSYNC ? -1",
            // Channels.
            &format!("SUBSCRIBE {channel}"),
            &format!("PUBLISH {channel} x"),
            &format!("SPUBLISH {channel} x"),
            &format!("SSUBSCRIBE {channel}"),
            "PSUBSCRIBE *",
            "PSUBSCRIBE leasehold:*",
            "SUBSCRIBE __keyspace@0__:x",
            "PUBSUB CHANNELS",
        ] {
            if !more.is_empty() && command.starts_with("CLIENT TRACKING") {
                continue;
            }
            let words: Vec<_> = command.split(' ').collect();
            let answer = attack.command(&words).await;
            assert!(is_refused(&answer), "{command}: {answer:?}");
        }
        // The library itself, with the other tenant's namespace.
        let pretends = Locker::builder().namespace(victim.namespace);
        let pretends = pretends.connect(&hostile.url).await;
        let pretends = pretends.expect("the user may connect, since it may ask for the time");
        let tried = pretends.lock("held").expect("valid").try_acquire().await;
        assert_eq!(tried.expect_err("refused").kind(), ErrorKind::Auth);
        let freed = pretends.force_release("held").await;
        assert_eq!(freed.expect_err("refused").kind(), ErrorKind::Auth);
        let lease = business.goes_on().await;
        lease.release().await.expect("a held lock");
    }
}

/// Documents what the right to `CLIENT TRACKING` reveals: the names of keys, and so of locks, of all tenants.
/// Without the right nothing is revealed.
#[tokio::test]
async fn tracking_reveals_the_names_of_all_keys_and_no_right_reveals_none() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let red = Tenant::new(&server, &mut admin, "red").await;
    for (namespace, more) in [("re", Rights::TRACKING), ("blue", "")] {
        let permitted = !more.is_empty();
        let hostile = Tenant::with(&server, &mut admin, namespace, more).await;
        let mut spy = TcpStream::connect(("127.0.0.1", server.port()))
            .await
            .expect("the server is up");
        let ask = format!(
            "HELLO 3 AUTH {} s3cret\r\nCLIENT TRACKING ON BCAST\r\n",
            hostile.namespace
        );
        spy.write_all(ask.as_bytes())
            .await
            .expect("the server is up");
        let answer = if permitted { "+OK" } else { "-NOPERM" };
        assert!(hears(&mut spy, answer).await, "{namespace}: {answer}");
        let locker = red.locker().await;
        let lease = locker.lock("payroll").expect("valid").acquire().await;
        lease
            .expect("a free lock")
            .release()
            .await
            .expect("a held lock");
        assert_eq!(
            hears(&mut spy, "{red:payroll}").await,
            permitted,
            "{namespace}"
        );
        // A tenant with the right can also redirect tracking to the other's connections.
        let mut attack = connection(&server, &hostile.user).await;
        let victim = connections_of(&mut admin, "red").await[0].clone();
        let answer = attack
            .command(&["CLIENT", "TRACKING", "ON", "REDIRECT", &victim, "BCAST"])
            .await;
        assert_eq!(is_refused(&answer), !permitted, "{namespace}: {answer:?}");
    }
}

/// Returns true if a connection receives this text within a second.
async fn hears(connection: &mut TcpStream, text: &str) -> bool {
    let mut heard = Vec::new();
    let hearing = async {
        while !String::from_utf8_lossy(&heard).contains(text) {
            connection
                .read_buf(&mut heard)
                .await
                .expect("the server is up");
        }
    };
    tokio::time::timeout(Duration::from_secs(1), hearing)
        .await
        .is_ok()
}

/// Returns the IDs of a user's connections.
async fn connections_of(admin: &mut Admin, user: &str) -> Vec<String> {
    let list = admin.string(&["CLIENT", "LIST"]).await.unwrap_or_default();
    let own = list
        .lines()
        .filter(|line| line.contains(&format!(" user={user} ")));
    let ids = own.filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
    ids.map(str::to_owned).collect()
}

/// Catches a locker for distrusting tenants that uses a command outside the advised rights.
#[tokio::test]
async fn a_locker_without_tracking_needs_no_right_to_it() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let red = Tenant::new(&server, &mut admin, "red").await;
    let builder = Locker::builder().namespace("red").tracking(false);
    let locker = builder
        .connect(&red.url)
        .await
        .expect("the user may connect");
    let lease = locker.lock("payroll").expect("valid").acquire().await;
    let subscribed = async || !channels(&mut admin, &red.channels()).await.is_empty();
    eventually(LIMIT, "the locker subscribes", subscribed).await;
    lease
        .expect("a free lock")
        .release()
        .await
        .expect("a held lock");
    assert!(locker.findings().is_empty(), "{:?}", locker.findings());
    let denied = denials(&mut admin).await;
    assert!(!denied.contains_key("client|tracking"), "{denied:?}");
}

/// Catches messages that can be forged from overheard ones.
#[tokio::test]
async fn a_forger_who_reads_no_key_changes_nothing() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let red = Tenant::new(&server, &mut admin, "red").await;
    let rights = "allchannels +psubscribe +publish +pubsub";
    let rights: Vec<_> = rights.split(' ').collect();
    user(&server, &mut admin, "hostile", &rights).await;
    let mut spy = connection(&server, "hostile").await;
    let mut forger = connection(&server, "hostile").await;
    spy.command(&["PSUBSCRIBE", "*"]).await;

    // It overhears the grant of a lease that is still held, and the loss of one that is over.
    let business = Business::start(&red, &mut admin, ["held", "contended"]).await;
    let granted = business.goes_on().await;
    let mut overheard = Vec::new();
    for what in ["granted", "revoked"] {
        let Ok(Resp::Array(parts)) = spy.next_value().await else {
            panic!("a message");
        };
        let message = parts[3].as_string().expect("a text");
        assert!(message.starts_with(what), "{message}");
        overheard.push(message);
    }

    // Sends each message again on every channel, unchanged and changed in many ways.
    let business = Business::start(&red, &mut admin, ["held too", "contended too"]).await;
    let channels = channels(&mut forger, "*").await;
    let mut messages = BTreeSet::new();
    for message in &overheard {
        let fields: Vec<_> = message.split(':').collect();
        let (half, seal) = (fields[1], fields[fields.len() - 1]);
        let (now, most) = (millis_now(), FencingToken::MAX);
        let token = fields[2];
        messages.extend([
            message.clone(),
            message.replace(token, &most.to_string()),
            format!("granted:{half}:{most}:{}:{}000:{seal}", now + 60_000, now),
            format!("granted:{half}:{token}:{}:{}000:{seal}", now + 60_000, now),
            format!("revoked:{half}:{token}:{seal}"),
            format!("superseded:{half}:{token}:{seal}"),
            format!("revoked:{half}:{}:{seal}", granted.token()),
            format!("revoked:{half}:{}:{}", granted.token(), "0".repeat(40)),
            format!("revoked:{half}{half}:{}", granted.token()),
        ]);
    }
    for channel in &channels {
        for message in &messages {
            let heard = forger.int(&["PUBLISH", channel, message]).await;
            assert!(heard >= 1, "{channel}");
        }
    }
    // Pushes keep their order: once a later one has arrived, the forged ones have, too.
    let other = business.goes_on().await;
    assert!(granted.is_valid());
    granted.release().await.expect("a held lock");
    other.release().await.expect("a held lock");
}

fn millis_now() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("the time is after 1970").as_millis()
}
