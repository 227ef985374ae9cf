//! The drift margin that the program sets.

use std::time::Duration;

use leasehold::Locker;
use leasehold_tests::{Admin, RedisServer, eventually};

use crate::{KEY, LIMIT, ONE_AT_A_TIME, expiry, wall_clock};

const TTL: Duration = Duration::from_secs(20);

/// Catches a setting that has no effect, or that is not taken as parts per million.
#[tokio::test]
async fn the_margin_is_the_time_between_the_deadline_and_the_servers_expiry() {
    let _turn = ONE_AT_A_TIME.lock().await;
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    for (parts, left) in [(1_000, 20), (90_000, 1_800), (250_000, 5_000)] {
        let locker = Locker::builder().drift_margin(parts);
        let locker = locker
            .connect(server.url())
            .await
            .expect("the server is up");
        let lock = locker.lock("x").expect("valid").ttl(TTL);
        let left = Duration::from_millis(left);
        // A slow reply makes the deadline earlier still.
        eventually(LIMIT, "a lease has this margin", async || {
            let lease = lock.acquire().await.expect("an answer");
            let expiry = expiry(&mut admin, KEY).await?;
            let margin = expiry.saturating_sub(wall_clock() + lease.remaining());
            lease.release().await.expect("a held lock");
            let about =
                left.saturating_sub(Duration::from_millis(1))..left + Duration::from_millis(9);
            about.contains(&margin).then_some(())
        })
        .await;
        locker.shutdown().await;
    }
}
