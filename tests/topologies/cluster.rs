//! A cluster of three masters, with a replica each.

use std::time::{Duration, Instant};

use leasehold_tests::{RedisCluster, RedisServer};

use crate::crowd::{Crowd, Sum, now};
use crate::{TTL, demoted, promoted, seconds};

const KEY: &str = "{leasehold:contended}";
/// The longest delay that clients add to the servers' own.
pub(crate) const ADDED: Duration = Duration::from_secs(4);

pub(crate) fn report(what: &str, sum: &Sum, gap: Duration) {
    let Sum {
        turns,
        refused,
        late,
        failed,
        overtaken,
        ..
    } = sum;
    println!(
        "{what}: {turns} turns, the longest gap {gap:.2?}; {refused} stale writes refused, {late} late ones that \
         were not stale, {failed} failed calls, {} overtaken tokens",
        overtaken.len()
    );
}

/// Moves the slot of the contended name back and forth.
async fn move_about(cluster: &RedisCluster, crowd: &mut Crowd, times: usize) -> Duration {
    let slot = cluster.slot(KEY).await;
    let mut at = cluster.master_of(slot).await;
    let other = (at + 1) % 3;
    let ends = [at, other];
    let begin = Instant::now();
    for _ in 0..times {
        let to = if at == ends[0] { ends[1] } else { ends[0] };
        cluster.move_slot(slot, at, to).await;
        at = to;
        crowd.run(Duration::from_millis(100)).await;
    }
    begin.elapsed()
}

async fn resharding(processes: usize, moves: usize) {
    let cluster = RedisCluster::start().await;
    let mut crowd = Crowd::start(&cluster.url(), processes, TTL).await;
    crowd.resumed(seconds(20)).await;
    let from = now();
    let took = move_about(&cluster, &mut crowd, moves).await;
    let to = now();
    crowd.resumed(seconds(20)).await;
    let sum = crowd.end().await;
    let gap = sum.longest_gap(from, to);
    report(&format!("{moves} moves in {took:.1?}"), &sum, gap);
    assert!(gap < seconds(3), "{gap:?}");
    assert!(sum.overtaken.is_empty(), "{:?}", sum.overtaken);
    assert!(sum.turns > processes * 10, "{sum:?}");
}

/// Catches a line that stops or is forgotten because its slot moves.
#[tokio::test]
async fn a_slot_moves_under_a_line() {
    resharding(4, 6).await;
}

#[tokio::test]
#[ignore = "takes a minute"]
async fn a_slot_moves_fifty_times_under_a_line() {
    resharding(8, 50).await;
}

/// Catches a line that does not go on at the master that took over.
#[tokio::test]
#[ignore = "takes half a minute"]
async fn the_master_of_a_line_is_killed() {
    let mut cluster = RedisCluster::with_replicas().await;
    let mut crowd = Crowd::start(&cluster.url(), 8, TTL).await;
    crowd.resumed(seconds(20)).await;
    crowd.run(seconds(2)).await;
    let at = cluster.master_of(cluster.slot(KEY).await).await;
    let from = now();
    cluster.allow_failover().await;
    let promoted = promoted(&cluster.replicas);
    cluster.masters[at].kill();
    let (first, all) = crowd.resumed(seconds(30)).await;
    crowd.run(seconds(2)).await;
    let sum = crowd.end().await;
    let promoted = promoted.await.expect("a replica takes over");
    let gap = sum.longest_gap(from.saturating_sub(seconds(1)), now());
    report(
        &format!(
            "a master killed: its replica leads after {promoted:.2?}, the line goes on after {first:.2?}, all after {all:.2?}"
        ),
        &sum,
        gap,
    );
    assert!(gap < promoted + ADDED, "{gap:?}");
    assert!(sum.overtaken.is_empty(), "{:?}", sum.overtaken);
}

/// Catches a connection to a paused master on which every client waits for ever, and one that is used again
/// after that master was demoted. Until the master learns that, there are two masters: only then may a token
/// be overtaken, and the guard refuses it.
#[tokio::test]
#[ignore = "takes half a minute"]
async fn the_master_of_a_line_is_paused() {
    let cluster = RedisCluster::with_replicas().await;
    let mut crowd = Crowd::start(&cluster.url(), 8, TTL).await;
    crowd.resumed(seconds(20)).await;
    crowd.run(seconds(2)).await;
    let at = cluster.master_of(cluster.slot(KEY).await).await;
    let from = now();
    let stopped: &RedisServer = &cluster.masters[at];
    cluster.allow_failover().await;
    let promoted = promoted(&cluster.replicas);
    stopped.pause();
    let (first, all) = crowd.resumed(seconds(30)).await;
    let resumed = now();
    stopped.resume();
    let demoted = demoted(stopped);
    let (again, _) = crowd.resumed(seconds(20)).await;
    let demoted = demoted
        .await
        .expect("the old master learns that it was demoted");
    crowd.run(seconds(1)).await;
    let sum = crowd.end().await;
    let promoted = promoted.await.expect("a replica takes over");
    let gap = sum.longest_gap(from.saturating_sub(seconds(1)), now());
    report(
        &format!(
            "a master stopped: its replica leads after {promoted:.2?}, the line goes on after {first:.2?}, all after {all:.2?}; {again:.2?} after it went on"
        ),
        &sum,
        gap,
    );
    assert!(gap < promoted + ADDED, "{gap:?}");
    assert!(
        sum.is_overtaken_only(resumed, demoted),
        "{:?}",
        sum.overtaken
    );
}
