//! What a handoff costs the nodes of a cluster, by how many masters that has: the node of the lock tells the
//! waiter, and a message that is published to a whole cluster goes to each node.

use std::fs;
use std::time::{Duration, Instant};

use leasehold::Locker;
use leasehold_tests::{Admin, RedisCluster, RedisServer};

use crate::Result;
use crate::options::Options;
use crate::stats::median;
use crate::topologies::take_turns;

const MASTERS: [usize; 3] = [3, 6, 12];
const CONTENDERS: usize = 4;
const HANDOFFS: usize = 2_000;
/// For as long the nodes are left alone, to learn what they do by themselves.
const IDLE: Duration = Duration::from_secs(1);
/// What the kernel counts processor time in.
const TICKS_PER_SECOND: f64 = 100.0;

/// What all nodes did together.
#[derive(Copy, Clone)]
struct Work {
    bytes: f64,
    seconds: f64,
    forwarded: f64,
}

pub(crate) async fn run(options: &Options) -> Result<()> {
    println!(
        "a handoff in a cluster: medians of {} rounds",
        options.rounds
    );
    println!("  masters   bytes written   processor time   messages from node to node");
    for masters in MASTERS {
        let cluster = RedisCluster::start_with(&RedisServer::config(), masters, false).await;
        let mut rounds = Vec::new();
        for round in 0..=options.rounds {
            let work = handoffs(&cluster).await?;
            // The first round warms up.
            if round > 0 {
                rounds.push(work);
            }
        }
        let all = |part: fn(&Work) -> f64| median(&rounds.iter().map(part).collect::<Vec<_>>());
        let (bytes, seconds) = (all(|work| work.bytes), all(|work| work.seconds));
        let forwarded = all(|work| work.forwarded);
        let micros = seconds * 1e6;
        println!("  {masters:>7}   {bytes:>13.0}   {micros:>11.0} µs   {forwarded:>10.1}");
    }
    Ok(())
}

/// The work of all nodes for one handoff, without what they do by themselves.
async fn handoffs(cluster: &RedisCluster) -> Result<Work> {
    let mut lockers = Vec::new();
    for _ in 0..CONTENDERS {
        let locker = Locker::connect(&cluster.url()).await?;
        // It hears of grants from its first acquisition on.
        locker.lock("handoff")?.acquire().await?.release().await?;
        lockers.push(locker);
    }
    let idle = during(cluster, async {
        tokio::time::sleep(IDLE).await;
        Ok(())
    });
    let (idle, idled) = idle.await?;
    let busy = during(cluster, take_turns(&lockers, HANDOFFS));
    let (busy, time) = busy.await?;
    for locker in lockers {
        locker.shutdown().await;
    }
    let share = time.as_secs_f64() / idled.as_secs_f64();
    let each = |busy: f64, idle: f64| (busy - idle * share) / HANDOFFS as f64;
    Ok(Work {
        bytes: each(busy.bytes, idle.bytes),
        seconds: each(busy.seconds, idle.seconds),
        forwarded: each(busy.forwarded, idle.forwarded),
    })
}

/// What the nodes did meanwhile, and how long it took.
async fn during(
    cluster: &RedisCluster,
    work: impl Future<Output = Result<()>>,
) -> Result<(Work, Duration)> {
    let (before, begin) = (count(cluster).await?, Instant::now());
    work.await?;
    let (time, after) = (begin.elapsed(), count(cluster).await?);
    let work = Work {
        bytes: after.bytes - before.bytes,
        seconds: after.seconds - before.seconds,
        forwarded: after.forwarded - before.forwarded,
    };
    Ok((work, time))
}

async fn count(cluster: &RedisCluster) -> Result<Work> {
    let (mut bytes, mut ticks, mut forwarded) = (0.0, 0.0, 0.0);
    for node in &cluster.masters {
        let io = fs::read_to_string(format!("/proc/{}/io", node.pid()))?;
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
        bytes += written.ok_or("no count of bytes written")?.parse::<f64>()?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", node.pid()))?;
        let (_, fields) = stat.rsplit_once(')').ok_or("no statistics of a process")?;
        // The time in the program and in the kernel, 14th and 15th of all fields.
        for field in fields.split_whitespace().skip(11).take(2) {
            ticks += field.parse::<f64>()?;
        }
        let mut admin = Admin::connect(node).await;
        let info = admin.string(&["CLUSTER", "INFO"]).await;
        for line in info.unwrap_or_default().lines() {
            if let Some((name, count)) = line.split_once(':')
                && (name == "cluster_stats_messages_publish_sent"
                    || name == "cluster_stats_messages_publishshard_sent")
            {
                forwarded += count.trim().parse::<f64>()?;
            }
        }
    }
    let seconds = ticks / TICKS_PER_SECOND;
    Ok(Work {
        bytes,
        seconds,
        forwarded,
    })
}
