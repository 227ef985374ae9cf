//! A server, a server with TLS, a cluster of three, and a server behind sentinels: pairs and handoffs as
//! ratios to the plain server, also through redis-rs's cluster client; and the first lease in round trips.

use std::time::{Duration, Instant};

use futures::future::join_all;
use leasehold::Locker;
use leasehold_tests::{Admin, Authority, Proxy, RedisCluster, RedisServer, eventually};

use crate::Result;
use crate::sides::{self, Side};
use crate::stats::{median, number, ratios};

/// Contenders of a handoff, each with a locker of its own.
const CONTENDERS: usize = 8;
const HANDOFFS: usize = 2_000;
/// The round trip of a connection whose round trips are counted.
const ROUND_TRIP: Duration = Duration::from_millis(40);

/// The way in which a locker connects.
enum By {
    Url(String),
    /// These nodes of a cluster, through redis-rs.
    RedisRs(Vec<String>),
}

impl By {
    async fn locker(&self) -> Result<Locker> {
        match self {
            Self::Url(url) => Ok(Locker::connect(url).await?),
            Self::RedisRs(nodes) => {
                let pushes = redis::Client::open(&*nodes[0])?;
                let client = redis::cluster::ClusterClient::new(nodes.clone())?;
                let connection = client.get_async_connection().await?;
                Ok(Locker::with_redis(connection, pushes).await?)
            }
        }
    }
}

pub(crate) async fn run(rounds: usize) -> Result<()> {
    let ca = Authority::new("bench");
    let pair = ca.server(&["127.0.0.1"]);
    let server = ca.start(&pair, false).await;
    let cluster = RedisCluster::start_with(&RedisServer::config().tls_cluster(&ca), 3, false).await;
    let nodes = cluster.masters.iter().map(RedisServer::url).collect();
    let all = [
        ("a server", By::Url(server.url())),
        ("by TLS", By::Url(tls_url(server.tls_port(), &ca))),
        ("a cluster of 3", By::Url(cluster.url())),
        ("the same by TLS", By::Url(cluster.tls_url(&ca.file))),
        ("by redis-rs", By::RedisRs(nodes)),
    ];
    println!("topologies: medians of {rounds} rounds; the ratios are those to a server");
    let servers = cluster.masters.iter().chain([&server]);
    let mut admins = join_all(servers.map(Admin::connect)).await;
    let mut lockers = Vec::new();
    for (_, by) in &all {
        lockers.push(Side::Lock(by.locker().await?));
    }
    for callers in [1, 64] {
        let reached = sides::take_turns(lockers.iter(), callers, rounds, &mut admins).await?;
        sides::head(callers);
        for ((name, _), own) in all.iter().zip(&reached) {
            own.show(name, own.ratio(&reached[0]));
        }
    }
    drop(lockers);
    let mut rates = [const { Vec::new() }; 5];
    for round in 0..=rounds {
        for ((_, by), rates) in all.iter().zip(&mut rates) {
            let rate = thousand_handoffs_per_second(by).await?;
            // The first round warms up.
            rates.extend((round > 0).then_some(rate));
        }
    }
    println!("thousand handoffs/s of {CONTENDERS} lockers, and ratio");
    for ((name, _), own) in all.iter().zip(&rates) {
        let ratio = median(&ratios(own, &rates[0]));
        println!("  {name:<34} {:>10} {ratio:>7.2}", number(median(own)));
    }
    first_leases(&ca).await
}

fn tls_url(port: u16, ca: &Authority) -> String {
    format!("rediss://127.0.0.1:{port}?ca={}", ca.file.display())
}

/// Measures lockers that take one lock in turn.
async fn thousand_handoffs_per_second(by: &By) -> Result<f64> {
    let mut lockers = Vec::new();
    for _ in 0..CONTENDERS {
        lockers.push(hearing(by.locker().await?).await?);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let seconds = take_turns(&lockers, HANDOFFS).await?;
    for locker in lockers {
        locker.shutdown().await;
    }
    Ok(HANDOFFS as f64 / seconds / 1e3)
}

/// Lets a locker acquire once, since it hears of grants from its first acquisition on.
pub(crate) async fn hearing(locker: Locker) -> Result<Locker> {
    locker.lock("handoff")?.acquire().await?.release().await?;
    Ok(locker)
}

/// Lets each locker take the lock `handoff` and release it, its share of this many times. Returns the seconds
/// that it took.
pub(crate) async fn take_turns(lockers: &[Locker], handoffs: usize) -> Result<f64> {
    let share = handoffs / lockers.len();
    let turns = lockers.iter().map(|locker| {
        let locker = locker.clone();
        async move {
            let lock = locker.lock("handoff")?;
            for _ in 0..share {
                lock.acquire().await?.release().await?;
            }
            Result::Ok(())
        }
    });
    sides::all(turns).await
}

/// Counts the round trips to connect, and to get a first lease.
async fn first_leases(ca: &Authority) -> Result<()> {
    println!("round trips to the first lease, of which the connection");
    let far = async |port| {
        let proxy = Proxy::start(port).await;
        proxy.latency(ROUND_TRIP / 2);
        proxy
    };
    let pair = ca.server(&["127.0.0.1"]);
    let server = ca.start(&pair, false).await;
    let plain = far(server.port()).await;
    first_lease("a server", &plain.url()).await?;
    let tls = far(server.tls_port()).await;
    first_lease("by TLS", &tls_url(tls.port(), ca)).await?;

    let cluster = RedisCluster::start().await;
    let mut proxies = Vec::new();
    for node in &cluster.masters {
        let proxy = far(node.port()).await;
        // The other nodes report the proxy; the bus stays unchanged.
        let port = proxy.port().to_string();
        let mut admin = Admin::connect(node).await;
        admin
            .ok(&["CONFIG", "SET", "cluster-announce-port", &port])
            .await;
        proxies.push(proxy);
    }
    let ports: Vec<_> = proxies.iter().map(Proxy::port).collect();
    for node in &cluster.masters {
        let mut admin = Admin::connect(node).await;
        let knows = async || {
            let slots = format!("{:?}", admin.command(&["CLUSTER", "SLOTS"]).await);
            ports.iter().all(|port| slots.contains(&port.to_string()))
        };
        eventually(Duration::from_secs(20), "the nodes report the ports", knows).await;
    }
    let url = format!("redis-cluster://127.0.0.1:{}", ports[0]);
    first_lease("a cluster of 3", &url).await?;

    // The sentinel reports the proxy.
    let sentinel = RedisServer::config().sentinel_at(plain.port(), 1);
    let sentinel = sentinel.start().await;
    let proxy = far(sentinel.port()).await;
    let url = format!("redis-sentinel://127.0.0.1:{}/mymaster", proxy.port());
    first_lease("by a sentinel", &url).await
}

async fn first_lease(what: &str, url: &str) -> Result<()> {
    let trips = |begin: Instant| begin.elapsed().as_secs_f64() / ROUND_TRIP.as_secs_f64();
    let (mut all, mut connecting) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let begin = Instant::now();
        let locker = Locker::connect(url).await?;
        connecting.push(trips(begin));
        let lease = locker.lock("first")?.acquire().await?;
        all.push(trips(begin));
        lease.release().await?;
        locker.shutdown().await;
    }
    let (all, connecting) = (median(&all), median(&connecting));
    println!("  {what:<34} {all:>10.1} ({connecting:.1})");
    Ok(())
}
