//! Lost pushes: every waiter still gets the lock, in order, slightly later.

use std::time::{Duration, Instant};

use leasehold::{Lease, Lock, Locker};
use leasehold_tests::{Admin, Direction, Mode, Monitor, Proxy, RedisServer, Stopwatch, eventually};
use tokio::task::JoinHandle;

use crate::script_calls::Executed;
use crate::{
    LIMIT, SLACK, connect, connect_url, held, in_line, lock, millis, served, subscribed, waiting,
};

/// Releases, and checks that the waiters get the lock in order. Returns how long each handoff took, without
/// the time in which the machine stood still.
async fn pass_on(holder: Lease, line: Vec<JoinHandle<Lease>>, limit: Duration) -> Vec<Duration> {
    let (mut lease, mut delays) = (holder, Vec::new());
    for next in line {
        let token = lease.token();
        let begin = Stopwatch::start();
        lease.release().await.expect("a held lock");
        lease = served(next, limit + SLACK).await;
        delays.push(begin.elapsed());
        assert!(lease.token() > token);
    }
    lease.release().await.expect("a held lock");
    delays
}

/// Lets this many waiters wait for `x`, one after the other, each with a locker of its own.
async fn queue_up(
    admin: &mut Admin,
    count: usize,
    locker: impl AsyncFn() -> Locker,
) -> Vec<JoinHandle<Lease>> {
    let mut line = Vec::new();
    for i in 0..count {
        let lock: Lock = lock(&locker().await, "x", &format!("w{i}"));
        line.push(waiting(&lock));
        in_line(admin, "x", i + 1).await;
    }
    line
}

/// The control of the other tests: where pushes arrive, a handoff is immediate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_pushes_a_handoff_is_immediate() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let holder = held(&lock(&locker, "x", "holder")).await;
    let line = queue_up(&mut admin, 5, async || connect(&server).await).await;
    subscribed(&mut admin, 6).await;
    let delays = pass_on(holder, line, Duration::ZERO).await;
    println!("handoffs by push took {delays:.0?}");
    let slowest = delays.iter().max().expect("there are five");
    assert!(*slowest < millis(500), "{delays:?}");
}

/// Catches a handoff that needs pushes: a user may neither publish nor subscribe, so waiters ask every
/// second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_channels_a_handoff_takes_a_second() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let deaf = "ACL SETUSER deaf on nopass ~* +@all resetchannels";
    admin.ok(&deaf.split(' ').collect::<Vec<_>>()).await;
    let url = format!("redis://deaf:any@127.0.0.1:{}", server.port());
    let locker = connect_url(&url).await;
    let holder = held(&lock(&locker, "x", "holder")).await;
    let line = queue_up(&mut admin, 4, async || connect_url(&url).await).await;
    let refused = async || {
        let stats = admin.info("commandstats", "cmdstat_subscribe").await?;
        let (_, rejected) = stats.split_once("rejected_calls=")?;
        let rejected: u64 = rejected.split(',').next()?.parse().ok()?;
        (rejected >= 5).then_some(())
    };
    eventually(LIMIT, "the subscriptions are refused", refused).await;
    let begin = Instant::now();
    let mut monitor = Monitor::start(&server).await;
    tokio::time::sleep(millis(2_500)).await;
    // Catches lockers that believe they are subscribed though it was refused.
    let labels = ["w0", "w1", "w2", "w3"];
    let asked = async || {
        let executed = Executed::read(&mut monitor).await;
        let twice = labels.iter().all(|label| executed.asks(label) >= 2);
        twice.then_some(executed)
    };
    let executed = eventually(LIMIT, "every waiter asks twice", asked).await;
    let most = 2 + begin.elapsed().as_millis() / 850;
    for label in labels {
        let asks = executed.asks(label);
        assert!(asks as u128 <= most, "{asks} asks of {label}, not {most}");
    }
    let delays = pass_on(holder, line, millis(1_000)).await;
    println!("handoffs without channels took {delays:.0?}");
    assert!(
        delays
            .iter()
            .all(|delay| *delay < millis(1_000) + SLACK / 2),
        "{delays:?}"
    );
}

/// Catches a waiter that misses its turn because its push connection is silent, which it notices after up to
/// 12 s. The server believes that the grant was heard. The next heartbeat comes before the grant's window
/// ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn into_a_black_hole_a_handoff_takes_a_heartbeat() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let holder = held(&lock(&locker, "x", "holder")).await;
    let mut proxies = Vec::new();
    let mut line = Vec::new();
    for i in 0..2 {
        let proxy = Proxy::start(server.port()).await;
        let locker = connect_url(&proxy.url()).await;
        line.push(waiting(&lock(&locker, "x", &format!("w{i}"))));
        in_line(&mut admin, "x", i + 1).await;
        subscribed(&mut admin, i + 2).await;
        assert_eq!(proxy.connections(), 2, "one for commands, one for pushes");
        proxy.only(1);
        proxy.set(Direction::Down, Mode::BlackHole);
        proxies.push(proxy);
    }
    let mut monitor = Monitor::start(&server).await;
    let delays = pass_on(holder, line, millis(5_000)).await;
    println!("handoffs into a black hole took {delays:.1?}");
    let executed = Executed::read(&mut monitor).await;
    for (i, label) in ["w0", "w1"].iter().enumerate() {
        assert!(
            executed.asks(label) > 0,
            "{label} learned of its turn by asking"
        );
        assert!(delays[i] < millis(5_000) + SLACK, "{delays:?}");
    }
    let published = executed.published.values().sum::<usize>();
    assert_eq!(published, 2, "both grants were published and not received");
}

/// Catches a subscription that is not renewed, and waiters that do not ask for missed grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_subscription_is_renewed_and_its_waiters_ask() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let holder = held(&lock(&locker, "x", "holder")).await;
    let line = queue_up(&mut admin, 3, async || connect(&server).await).await;
    subscribed(&mut admin, 4).await;
    let mut monitor = Monitor::start(&server).await;
    let killed = admin.int(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    assert_eq!(killed, 4);
    subscribed(&mut admin, 4).await;
    // They ask when the connection ends, and again when it is back.
    let mut asks = async || {
        let executed = Executed::read(&mut monitor).await;
        let labels = ["w0", "w1", "w2"];
        labels.iter().all(|label| executed.asks(label) >= 1)
    };
    eventually(millis(2_500), "every waiter asks again", &mut asks).await;
    let delays = pass_on(holder, line, Duration::ZERO).await;
    println!("handoffs after new subscriptions took {delays:.0?}");
    assert!(
        delays.iter().all(|delay| *delay < millis(500)),
        "{delays:?}"
    );
}

/// Catches a half window that is shorter than a heartbeat, by which the next waiter would overtake a live
/// one. The server has closed the push connection, and the client does not know. So the push reaches no
/// client, and the grant lasts for half of the window.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_with_an_unnoticed_dead_subscription_keeps_its_turn() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = connect(&server).await;
    let holder = held(&lock(&locker, "x", "holder")).await;
    let proxy = Proxy::start(server.port()).await;
    let deaf = connect_url(&proxy.url()).await;
    let deaf = waiting(&lock(&deaf, "x", "deaf"));
    in_line(&mut admin, "x", 1).await;
    subscribed(&mut admin, 2).await;
    let next = waiting(&lock(&connect(&server).await, "x", "next"));
    in_line(&mut admin, "x", 2).await;
    subscribed(&mut admin, 3).await;
    proxy.only(1);
    proxy.set_both(Mode::BlackHole);
    let list = admin.string(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    let list = list.expect("a list");
    let ids: Vec<_> = list
        .lines()
        .filter_map(|client| client.split(' ').next()?.strip_prefix("id="))
        .collect();
    // They are listed in the order in which they subscribed.
    let mut monitor = Monitor::start(&server).await;
    admin.int(&["CLIENT", "KILL", "ID", ids[1]]).await;
    let asked = async || Executed::read(&mut monitor).await.asks("deaf") > 0;
    eventually(LIMIT, "the deaf waiter asks", asked).await;
    let delays = pass_on(holder, vec![deaf, next], millis(6_000)).await;
    println!("a handoff with an unnoticed dead subscription took {delays:.1?}");
}
