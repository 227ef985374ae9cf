//! A quorum of five servers.

use futures::future::join_all;
use leasehold_tests::RedisServer;

use crate::crowd::Crowd;
use crate::seconds;

const TURNS: usize = 6;

/// Catches contenders that take servers from one another for ever, and an abandoned lease: it would block the lock for
/// its time to live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_processes_at_five_servers_all_get_their_turns() {
    let servers = join_all((0..5).map(|_| RedisServer::start())).await;
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let mut crowd = Crowd::start(&urls.join(" "), 16, seconds(30)).await;
    for _ in 0..TURNS {
        let (_, all) = crowd.resumed(seconds(10)).await;
        println!("all had the lock again after {all:.2?}");
    }
    let sum = crowd.end().await;
    assert_eq!(sum.failed, 0);
    // The clocks of the processes differ too much to compare times. A lease with a token lower than an earlier one
    // would be refused its write.
    assert_eq!(sum.in_vain, 0);
}
