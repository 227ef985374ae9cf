//! Locks that count only once replicas or the disk have them, on a primary with two replicas.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Error, ErrorKind, Lock, Locker};
use leasehold_tests::{Admin, FakeServer, Mode, Proxy, RedisServer, eventually};

use crate::{LIMIT, connect, connect_with, in_line, lock_key, millis};

/// Long enough for a healthy replica on a busy machine.
const ENOUGH: Duration = Duration::from_secs(3);
/// A timeout for a replica that does not answer.
const SHORT: Duration = Duration::from_millis(200);

struct Replicated {
    primary: RedisServer,
    replicas: Vec<RedisServer>,
    /// The proxies between the primary and each replica.
    links: Vec<Proxy>,
}

impl Replicated {
    async fn start() -> Self {
        let primary = RedisServer::start().await;
        let (mut replicas, mut links) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let link = Proxy::start(primary.port()).await;
            let of = format!("127.0.0.1 {}", link.port());
            let replica = RedisServer::config().args(["--replicaof", &of]);
            let replica = replica.start().await;
            links.push(link);
            replica.in_sync().await;
            replicas.push(replica);
        }
        let all = Self {
            primary,
            replicas,
            links,
        };
        all.acknowledge().await;
        all
    }

    /// Waits until both replicas acknowledge writes.
    async fn acknowledge(&self) {
        let mut admin = Admin::connect(&self.primary).await;
        let acknowledge = async || admin.int(&["WAIT", "2", "100"]).await == 2;
        eventually(LIMIT, "both replicas acknowledge", acknowledge).await;
    }

    /// Kills the primary and promotes the first replica.
    async fn fail_over(&mut self) -> Locker {
        self.primary.kill();
        let replica = &self.replicas[0];
        let mut admin = Admin::connect(replica).await;
        admin.ok(&["REPLICAOF", "NO", "ONE"]).await;
        connect(replica).await
    }
}

fn lock(locker: &Locker, name: &str) -> Lock {
    locker.lock(name).expect("valid")
}

async fn too_few(lock: &Lock) -> Error {
    let error = lock.try_acquire().await.expect_err("too few acknowledge");
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error:?}");
    assert!(error.is_transient());
    error
}

async fn is_free(admin: &mut Admin, name: &str) {
    let key = lock_key(name);
    let free = async || admin.int(&["HLEN", &key]).await <= 1;
    eventually(LIMIT, "the lock is released", free).await;
}

/// Catches an acquisition that counts before its replicas have it, and one that is refused and kept.
#[tokio::test]
async fn a_lock_counts_once_its_replicas_have_it() {
    let mut all = Replicated::start().await;
    let locker = connect(&all.primary).await;
    let mut admin = Admin::connect(&all.primary).await;
    let both = lock(&locker, "x").replicas(2, ENOUGH);
    let lease = both.acquire().await.expect("both replicas are up");
    for replica in &all.replicas {
        let mut admin = Admin::connect(replica).await;
        assert_eq!(admin.int(&["EXISTS", &lock_key("x")]).await, 1);
    }
    lease.renew().await.expect("both replicas are up");
    // Also at a server that has forgotten the script.
    admin.ok(&["SCRIPT", "FLUSH"]).await;
    lease.renew().await.expect("the script is sent again");
    lease.release().await.expect("a held lock");

    all.replicas[0].pause();
    let error = too_few(&lock(&locker, "x").replicas(2, SHORT)).await;
    let said = "the lock is not durable: 1 of 2 replicas acknowledged it in time";
    assert!(error.to_string().contains(said), "{error}");
    is_free(&mut admin, "x").await;
    let one = lock(&locker, "x").replicas(1, ENOUGH);
    let lease = one.acquire().await.expect("one server is up");
    lease.release().await.expect("a held lock");

    all.replicas[1].kill();
    let error = too_few(&lock(&locker, "x").replicas(1, SHORT)).await;
    assert!(error.to_string().contains("0 of 1"), "{error}");
    is_free(&mut admin, "x").await;
    all.replicas[0].resume();
    // A waiter gets the error, too, since other waiters would fare no better.
    let held = lock(&locker, "x")
        .acquire()
        .await
        .expect("the lock asks no replica");
    let waits = lock(&locker, "x").replicas(2, SHORT);
    let waits = tokio::spawn(async move { waits.acquire().await });
    in_line(&locker, "x").await;
    held.release().await.expect("a held lock");
    let error = waits.await.expect("no panic").expect_err("one is dead");
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error:?}");
    is_free(&mut admin, "x").await;
}

/// Catches a lock that counts although the promoted server never got it. The case without replicas is the
/// negative control: there a failover gives the lock to a second holder.
#[tokio::test]
async fn a_failover_does_not_lose_an_acknowledged_lock() {
    for waits in [false, true] {
        let mut all = Replicated::start().await;
        let locker = connect(&all.primary).await;
        // The kernel would keep unread data for a process that is only stopped.
        let black_hole = |link: &Proxy| link.set_both(Mode::BlackHole);
        all.links.iter().for_each(black_hole);
        let lock_of = |locker: &Locker| {
            let lock = lock(locker, "x").ttl(Duration::from_secs(60));
            if waits { lock.replicas(2, SHORT) } else { lock }
        };
        let first = if waits {
            too_few(&lock_of(&locker)).await;
            all.links.iter().for_each(Proxy::heal);
            all.acknowledge().await;
            let lock = lock(&locker, "x").ttl(Duration::from_secs(60));
            lock.replicas(2, ENOUGH).acquire().await
        } else {
            lock_of(&locker).acquire().await
        };
        let first = first.expect("a free lock");
        let promoted = all.fail_over().await;
        let second = lock(&promoted, "x").try_acquire().await.expect("an answer");
        assert_eq!(second.is_none(), waits, "held twice: {}", second.is_some());
        assert!(first.is_valid(), "the holder cannot know");
        if let Some(second) = second {
            // Guards at least refuse the first holder.
            assert!(second.token() > first.token());
        }
    }
}

/// Catches other leases that are lost, and a connection that is replaced, because a server waits for
/// replicas.
#[tokio::test]
async fn other_calls_go_on_while_one_waits_for_replicas() {
    let all = Replicated::start().await;
    let locker = connect(&all.primary).await;
    all.replicas[0].pause();
    let other = lock(&locker, "other").ttl(millis(2_000));
    let other = other.acquire().await.expect("a free lock");
    let before = locker.inspect("other").await.expect("an answer");
    let hopeless = lock(&locker, "x").replicas(2, SHORT);
    for _ in 0..20 {
        too_few(&hopeless).await;
        assert!(other.is_valid());
    }
    let after = locker.inspect("other").await.expect("an answer");
    let tokens = [before, after].map(|seen| seen.holder.expect("a held lock").token);
    assert_eq!(tokens[0], tokens[1]);
    other.release().await.expect("a held lock");
}

/// Catches a `fsynced()` that a server without `WAITAOF` ignores.
#[tokio::test]
async fn an_impossible_durability_is_an_error() {
    let server = RedisServer::config().append_only().start().await;
    let mut admin = Admin::connect(&server).await;
    let version = admin.info("server", "redis_version").await;
    let version = version.expect("the server tells its version");
    let locker = connect(&server).await;
    let on_disk = lock(&locker, "x").fsynced();
    let acquired = on_disk.try_acquire().await;
    if version.starts_with("7.0.") {
        let error = acquired.expect_err("there is no WAITAOF");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        assert!(
            error.to_string().contains("`fsynced` needs Redis 7.2"),
            "{error}"
        );
        is_free(&mut admin, "x").await;
    } else {
        let lease = acquired
            .expect("the write is on the disk")
            .expect("a free lock");
        lease.release().await.expect("a held lock");
    }
    let memory = Locker::in_memory();
    for lock in [
        lock(&memory, "x").fsynced(),
        lock(&memory, "x").replicas(1, SHORT),
    ] {
        let error = lock.acquire().await.expect_err("there are none");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        let message = "an in-memory store has neither replicas nor a disk";
        assert!(error.to_string().contains(message), "{error}");
    }
    let quorum = Locker::quorum([
        "memory://durable-1",
        "memory://durable-2",
        "memory://durable-3",
    ]);
    let quorum = quorum.await.expect("the servers are up");
    let error = lock(&quorum, "x").replicas(1, SHORT).acquire().await;
    let error = error.expect_err("a quorum has copies of its own");
    assert!(error.is_config(), "{error:?}");
    assert!(error.to_string().contains("a quorum"), "{error}");
    for (n, timeout) in [
        (0, SHORT),
        (1, Duration::ZERO),
        (1, Duration::from_secs(61)),
    ] {
        let lock = lock(&memory, "x").replicas(n, timeout).fsynced();
        let error = lock
            .acquire()
            .await
            .expect_err("the value is out of bounds");
        assert!(error.is_config(), "{error:?}");
    }
}

/// Starts a server that grants every lock, as version 7.2, and answers `WAIT` and `WAITAOF` in this way.
async fn granting(wait: impl Fn(&[String]) -> &'static str + Send + Sync + 'static) -> FakeServer {
    FakeServer::start(move |command| {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time.expect("the time is after 1970").as_micros();
        match command[0].to_uppercase().as_str() {
            "PING" => "+PONG\r\n".to_owned(),
            "CLIENT" | "SELECT" => "+OK\r\n".to_owned(),
            "INFO" => "$31\r\n# Server\r\nredis_version:7.2.0\r\n\r\n".to_owned(),
            "EVALSHA" => format!("$16\r\n{time}\r\n"),
            "WAIT" | "WAITAOF" => wait(command).to_owned(),
            _ => format!("-ERR unknown command '{}'\r\n", command[0]),
        }
    })
    .await
}

/// Catches a missing or misplaced `WAITAOF`. In the last case the server has no append-only file.
#[tokio::test]
async fn waitaof_follows_the_script() {
    let server = granting(|command| match command[2].as_str() {
        "0" => "*2\r\n:1\r\n:0\r\n",
        "1" => "*2\r\n:0\r\n:1\r\n",
        _ => "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.\r\n",
    })
    .await;
    let locker = connect_with(Locker::builder(), &server.url()).await;
    let lease = lock(&locker, "x").fsynced().acquire().await;
    let lease = lease.expect("the lock is on the disk");
    let commands = server.commands();
    let place = commands.iter().position(|words| words[0] == "WAITAOF");
    let place = place.expect("the disk was asked");
    assert_eq!(commands[place], ["WAITAOF", "1", "0", "1000"]);
    assert_eq!(commands[place - 1][0], "EVALSHA");
    drop(lease);
    let error = too_few(&lock(&locker, "y").replicas(1, SHORT).fsynced()).await;
    let said = "the server did not write it to disk in time";
    assert!(error.to_string().contains(said), "{error}");
    let error = lock(&locker, "z")
        .fsynced()
        .replicas(2, SHORT)
        .acquire()
        .await;
    let error = error.expect_err("there is no append-only file");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(error.to_string().contains("appendonly"), "{error}");
}

/// Catches a lock that counts although nobody said how many replicas have it: the server grants it, and does not answer
/// the `WAIT`, or only that it cannot now.
#[tokio::test]
async fn without_a_number_of_copies_a_lock_does_not_count() {
    for answer in ["", "-LOADING Redis is loading the dataset in memory\r\n"] {
        let server = granting(move |_| answer).await;
        let locker = connect_with(Locker::builder(), &server.url()).await;
        let lock = lock(&locker, "x").replicas(1, SHORT);
        let acquired = lock.acquire_within(millis(1_500)).await;
        assert!(!matches!(acquired, Ok(Some(_))), "{acquired:?}");
        let asked = server.commands();
        assert!(asked.iter().any(|words| words[0] == "WAIT"), "{asked:?}");
    }
}
