//! A primary with two replicas, watched by three sentinels.

use leasehold_tests::RedisService;

use crate::cluster::{ADDED, report};
use crate::crowd::{Crowd, now};
use crate::{TTL, demoted, promoted, seconds};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Killed,
    Stopped,
}

async fn failover(trouble: Trouble) {
    let mut all = RedisService::start().await;
    let mut crowd = Crowd::start(&all.url(), 8, TTL).await;
    crowd.resumed(seconds(20)).await;
    crowd.run(seconds(2)).await;
    let from = now();
    let promoted = promoted(&all.replicas);
    match trouble {
        Trouble::Killed => all.primary.kill(),
        Trouble::Stopped => all.primary.pause(),
    }
    let (first, every) = crowd.resumed(seconds(40)).await;
    // A resumed primary has yet to learn that it was demoted: until then there are two.
    let mut two = (now(), now());
    if trouble == Trouble::Stopped {
        all.primary.resume();
        let demoted = demoted(&all.primary);
        crowd.resumed(seconds(20)).await;
        two.1 = demoted
            .await
            .expect("the old primary learns that it was demoted");
        println!(
            "the old primary learned of its demotion after {:.2?}",
            two.1.saturating_sub(two.0)
        );
    }
    crowd.run(seconds(3)).await;
    let sum = crowd.end().await;
    let promoted = promoted.await.expect("a replica takes over");
    let gap = sum.longest_gap(from.saturating_sub(seconds(1)), now());
    let what = match trouble {
        Trouble::Killed => "a primary killed",
        Trouble::Stopped => "a primary stopped",
    };
    report(
        &format!(
            "{what}: a replica leads after {promoted:.2?}, the line goes on after {first:.2?}, all after {every:.2?}"
        ),
        &sum,
        gap,
    );
    assert!(gap < promoted + ADDED, "{gap:?}");
    assert!(sum.is_overtaken_only(two.0, two.1), "{:?}", sum.overtaken);
}

/// Catches a line that does not go on at the primary that took over.
#[tokio::test]
#[ignore = "takes half a minute"]
async fn the_primary_of_a_line_is_killed() {
    failover(Trouble::Killed).await;
}

/// Catches connections to a paused primary on which every client waits for ever.
#[tokio::test]
#[ignore = "takes half a minute"]
async fn the_primary_of_a_line_is_paused() {
    failover(Trouble::Stopped).await;
}
