//! A server, the same by TLS, a cluster of three and a server that sentinels watch: pairs and handoffs as
//! ratios to the plain server, also through a cluster's client of redis-rs, and the first lease in round trips.

use std::time::{Duration, Instant};

use leasehold::Locker;
use leasehold_tests::{Admin, Authority, Proxy, RedisCluster, RedisServer};
use tokio::task::JoinSet;

use crate::Result;
use crate::options::Options;
use crate::pairs::thousand_per_second;
use crate::stats::median;

/// Contenders of a handoff, each with a locker of its own.
const CONTENDERS: usize = 8;
const HANDOFFS: usize = 2_000;
/// Of a connection whose round trips are counted, there and back.
const ROUND_TRIP: Duration = Duration::from_millis(40);

/// By what a locker is connected.
enum By {
    Url(String),
    /// These nodes of a cluster, by redis-rs.
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

pub(crate) async fn run(options: &Options) -> Result<()> {
    let ca = Authority::new("bench");
    let pair = ca.server(&["127.0.0.1"]);
    let server = ca.start(&pair, false).await;
    let cluster = RedisCluster::start_with(&RedisServer::config().tls_cluster(&ca), 3, false).await;
    let nodes = cluster.masters.iter().map(RedisServer::url).collect();
    let sides = [
        ("a server", By::Url(server.url())),
        ("by TLS", By::Url(tls_url(&server, &ca))),
        ("a cluster of 3", By::Url(cluster.url())),
        ("the same by TLS", By::Url(cluster.tls_url(&ca.file))),
        ("by redis-rs", By::RedisRs(nodes)),
    ];
    println!(
        "topologies: medians of {} rounds, and in brackets the ratios to a server",
        options.rounds
    );
    for callers in [1, 64] {
        let mut rates = Vec::new();
        for (_, by) in &sides {
            rates.push((by.locker().await?, Vec::new()));
        }
        for round in 0..=options.rounds {
            for (locker, rates) in &mut rates {
                let locker = locker.clone();
                let pairs = thousand_per_second(callers, move |caller| {
                    let lock = locker.lock(format!("topologies-{caller}"));
                    async move { Ok(lock?.acquire().await?.release().await?) }
                });
                let rate = pairs.await?;
                // The first round warms up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        let rates: Vec<_> = rates.into_iter().map(|(_, rates)| rates).collect();
        show(
            &format!("thousand pairs/s, {callers} callers"),
            &sides,
            &rates,
        );
    }
    let mut rates = vec![Vec::new(); sides.len()];
    for round in 0..=options.rounds {
        for ((_, by), rates) in sides.iter().zip(&mut rates) {
            let rate = thousand_handoffs_per_second(by).await?;
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    let what = format!("thousand handoffs/s, {CONTENDERS} lockers");
    show(&what, &sides, &rates);
    first_leases(&ca).await
}

fn tls_url(server: &RedisServer, ca: &Authority) -> String {
    let (port, file) = (server.tls_port(), ca.file.display());
    format!("rediss://127.0.0.1:{port}?ca={file}")
}

fn show(what: &str, sides: &[(&str, By)], rates: &[Vec<f64>]) {
    println!("{what}");
    for ((side, _), own) in sides.iter().zip(rates) {
        let ratios = own.iter().zip(&rates[0]).map(|(own, first)| own / first);
        let ratio = median(&ratios.collect::<Vec<_>>());
        println!("  {side:<16} {:>7.2} ({ratio:.2})", median(own));
    }
}

/// Lockers that take one lock in turn.
async fn thousand_handoffs_per_second(by: &By) -> Result<f64> {
    let mut lockers = Vec::new();
    for _ in 0..CONTENDERS {
        let locker = by.locker().await?;
        // It hears of grants from its first acquisition on.
        locker.lock("handoff")?.acquire().await?.release().await?;
        lockers.push(locker);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begin = Instant::now();
    take_turns(&lockers, HANDOFFS).await?;
    let rate = HANDOFFS as f64 / begin.elapsed().as_secs_f64() / 1e3;
    for locker in lockers {
        locker.shutdown().await;
    }
    Ok(rate)
}

/// Each locker takes the lock `handoff` and releases it, its share of so many times.
pub(crate) async fn take_turns(lockers: &[Locker], handoffs: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for locker in lockers {
        let (lock, share) = (locker.lock("handoff")?, handoffs / lockers.len());
        tasks.spawn(async move {
            for _ in 0..share {
                lock.acquire().await?.release().await?;
            }
            Result::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// How many round trips it takes to connect, and to have a first lease.
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
    let url = format!("rediss://127.0.0.1:{}?ca={}", tls.port(), ca.file.display());
    first_lease("by TLS", &url).await?;

    let cluster = RedisCluster::start().await;
    let mut proxies = Vec::new();
    for node in &cluster.masters {
        let proxy = far(node.port()).await;
        // The others tell of the proxy; the bus stays as it is.
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
        leasehold_tests::eventually(Duration::from_secs(20), "the ports to be told", knows).await;
    }
    first_lease(
        "a cluster of 3",
        &format!("redis-cluster://127.0.0.1:{}", ports[0]),
    )
    .await?;

    // The sentinel tells of the proxy.
    let sentinel = RedisServer::config()
        .sentinel_at(plain.port(), 1)
        .start()
        .await;
    let sentinel_proxy = far(sentinel.port()).await;
    let url = format!(
        "redis-sentinel://127.0.0.1:{}/mymaster",
        sentinel_proxy.port()
    );
    first_lease("by a sentinel", &url).await
}

async fn first_lease(what: &str, url: &str) -> Result<()> {
    let trips = |time: Duration| time.as_secs_f64() / ROUND_TRIP.as_secs_f64();
    let mut counts = Vec::new();
    for _ in 0..5 {
        let begin = Instant::now();
        let locker = Locker::connect(url).await?;
        let connected = begin.elapsed();
        let lease = locker.lock("first")?.acquire().await?;
        counts.push((trips(begin.elapsed()), trips(connected)));
        lease.release().await?;
        locker.shutdown().await;
    }
    let [all, connecting] = [
        counts.iter().map(|count| count.0).collect::<Vec<_>>(),
        counts.iter().map(|count| count.1).collect(),
    ];
    let (all, connecting) = (median(&all), median(&connecting));
    println!("  {what:<16} {all:>7.1} ({connecting:.1})");
    Ok(())
}
