//! The errors of a lost lease name the reason of the loss.

use std::error::Error as _;

use leasehold::{Lease, Locker, LossReason, Lost};
use leasehold_tests::{Admin, RedisServer, within};

use crate::{LIMIT, connect, lock_key, millis};

/// Catches "it was lost or released before" where the reason is known.
async fn names_the_reason(lease: Lease, reason: LossReason) {
    let lost = within(LIMIT, lease.lost()).await;
    assert_eq!(lost.map(|lost| lost.reason), Some(reason));
    let (name, token) = (lease.name().clone(), lease.token());
    let renewed = lease.renew().await.expect_err("a lost lease");
    let released = lease.release().await.expect_err("a lost lease");
    for error in [renewed, released] {
        let text = format!("lock {name:?}: the lease is not held: {reason}");
        assert_eq!(error.to_string(), text);
        assert!(error.is_not_held());
        let source = error.source().expect("the loss");
        let lost: &Lost = source.downcast_ref().expect("the loss");
        assert_eq!(
            (&lost.name, lost.token, lost.reason),
            (&name, token, reason)
        );
    }
}

#[tokio::test]
async fn renewing_and_releasing_a_lost_lease_say_why_it_is_lost() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let mut admin = Admin::connect(&server).await;
    let acquire = async |name: &str| {
        let lock = locker.lock(name).expect("valid").ttl(millis(3_000));
        lock.owner("job").acquire().await.expect("a free lock")
    };
    let lock = locker.lock("expired").expect("valid").ttl(millis(50));
    let lease = lock.fixed().acquire().await.expect("a free lock");
    names_the_reason(lease, LossReason::Expired).await;

    let lease = acquire("deleted").await;
    assert_eq!(admin.int(&["DEL", &lock_key("deleted")]).await, 1);
    names_the_reason(lease, LossReason::Deleted).await;

    let lease = acquire("revoked").await;
    let freed = locker.force_release("revoked").await.expect("an answer");
    assert!(freed.is_some());
    names_the_reason(lease, LossReason::Revoked).await;

    let lease = acquire("superseded").await;
    let other = connect(&server).await;
    let lock = other.lock("superseded").expect("valid").owner("job");
    let _reclaimed = lock.acquire().await.expect("the lock is the owner's");
    names_the_reason(lease, LossReason::Superseded).await;
}

/// Catches a release after a shutdown that never ends or does not name the shutdown.
#[tokio::test]
async fn a_release_after_a_shutdown_names_the_shutdown() {
    let locker = Locker::in_memory();
    let lock = locker.lock("x").expect("valid");
    let lease = lock.acquire().await.expect("a free lock");
    locker.shutdown().await;
    let error = lease.release().await.expect_err("a lost lease");
    let text = "lock \"x\": the lease is not held: the locker was shut down";
    assert_eq!(error.to_string(), text);
}
