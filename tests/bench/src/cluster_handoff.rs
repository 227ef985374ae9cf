//! The cost of a handoff for the nodes of a cluster, by its number of masters. The lock's node notifies the
//! waiter; a message that is published to a whole cluster goes to each node.

use std::fs;
use std::time::{Duration, Instant};

use leasehold::Locker;
use leasehold_tests::{Admin, RedisCluster, RedisServer};

use crate::Result;
use crate::stats::{median, seconds_of};
use crate::topologies::{hearing, take_turns};

const MASTERS: [usize; 3] = [3, 6, 12];
const CONTENDERS: usize = 4;
const HANDOFFS: usize = 2_000;
/// How long the nodes idle, to measure their own activity.
const IDLE: Duration = Duration::from_secs(1);
/// The work of all nodes together: bytes written, seconds of processor time, messages between nodes.
type Work = [f64; 3];

pub(crate) async fn run(rounds: usize) -> Result<()> {
    println!("a handoff in a cluster: medians of {rounds} rounds");
    println!("  masters   bytes written   processor time   messages from node to node");
    for masters in MASTERS {
        let cluster = RedisCluster::start_with(&RedisServer::config(), masters, false).await;
        let mut all = [const { Vec::new() }; 3];
        for round in 0..=rounds {
            let work = handoffs(&cluster).await?;
            for (all, part) in all.iter_mut().zip(work) {
                // The first round warms up.
                all.extend((round > 0).then_some(part));
            }
        }
        let [bytes, seconds, messages] = all.map(|part| median(&part));
        let micros = seconds * 1e6;
        println!("  {masters:>7}   {bytes:>13.0}   {micros:>11.0} µs   {messages:>10.1}");
    }
    Ok(())
}

/// Returns the work of all nodes for one handoff, without their own activity.
async fn handoffs(cluster: &RedisCluster) -> Result<Work> {
    let mut lockers = Vec::new();
    for _ in 0..CONTENDERS {
        lockers.push(hearing(Locker::connect(&cluster.url()).await?).await?);
    }
    let (before, begin) = (count(cluster).await?, Instant::now());
    tokio::time::sleep(IDLE).await;
    let (idled, between) = (begin.elapsed(), count(cluster).await?);
    let begin = Instant::now();
    take_turns(&lockers, HANDOFFS).await?;
    let (time, after) = (begin.elapsed(), count(cluster).await?);
    for locker in lockers {
        locker.shutdown().await;
    }
    let share = time.as_secs_f64() / idled.as_secs_f64();
    Ok(std::array::from_fn(|part| {
        let (idle, busy) = (between[part] - before[part], after[part] - between[part]);
        (busy - idle * share) / HANDOFFS as f64
    }))
}

async fn count(cluster: &RedisCluster) -> Result<Work> {
    let mut sum = Work::default();
    for node in &cluster.masters {
        let io = fs::read_to_string(format!("/proc/{}/io", node.pid()))?;
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
        sum[0] += written.ok_or("no count of bytes written")?.parse::<f64>()?;
        sum[1] += seconds_of(node.pid())?;
        let mut admin = Admin::connect(node).await;
        let info = admin.string(&["CLUSTER", "INFO"]).await;
        for line in info.unwrap_or_default().lines() {
            if let Some((name, count)) = line.split_once(':')
                && (name == "cluster_stats_messages_publish_sent"
                    || name == "cluster_stats_messages_publishshard_sent")
            {
                sum[2] += count.trim().parse::<f64>()?;
            }
        }
    }
    Ok(sum)
}
