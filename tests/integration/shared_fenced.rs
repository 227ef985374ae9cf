//! Slots as fenced resources: what a guard does after a server has forgotten the holders.

use leasehold::fence::redis::FencedRedis;
use leasehold::{ErrorKind, Locker, Permit};
use leasehold_tests::{Admin, Mode, Proxy, RedisServer};

use crate::shared::{NAME, within};
use crate::{connect, millis, own_client};

/// Returns true if the guard of this resource lets the permit write.
async fn writes(guard: &FencedRedis, resource: &str, permit: &Permit) -> bool {
    let fenced = guard.resource(resource, permit.token()).expect("valid");
    match fenced.push("log", permit.token().to_string()).await {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::StaleToken => false,
        Err(error) => panic!("{error}"),
    }
}

async fn three(locker: &Locker) -> Vec<Permit> {
    let licenses = locker.semaphore(NAME, 3).expect("valid").ttl(millis(3_000));
    let mut permits = Vec::new();
    for _ in 0..3 {
        permits.push(licenses.acquire().await.expect("a permit"));
    }
    permits
}

/// The exception of shared names: after `FLUSHALL`, a slot may have two holders until the older lease ends. Catches a
/// guard that lets the older one write, tokens that begin anew, and an older holder that goes on after its deadline.
#[tokio::test]
async fn after_flushall_a_guard_refuses_the_older_holder_of_a_slot() {
    let (server, storage) = (RedisServer::start().await, RedisServer::start().await);
    let link = Proxy::start(server.port()).await;
    let cut_off = Locker::connect(link.url()).await.expect("a server");
    let guard = FencedRedis::new(own_client(&storage).await);
    let older = three(&cut_off).await;
    for permit in &older {
        assert!(writes(&guard, &permit.resource(), permit).await);
    }
    // They do not hear of it.
    link.set_both(Mode::Hold);
    Admin::connect(&server).await.flushall().await;
    let licenses = connect(&server).await.semaphore(NAME, 3).expect("valid");
    let newer = licenses.acquire().await.expect("a permit");
    assert_eq!(newer.slot(), Some(0));
    assert!(older.iter().all(|permit| newer.token() > permit.token()));
    assert!(writes(&guard, &newer.resource(), &newer).await);
    assert!(!writes(&guard, &older[0].resource(), &older[0]).await);
    assert!(writes(&guard, &older[1].resource(), &older[1]).await);
    let are_valid = older.iter().all(|permit| permit.is_valid());
    assert!(are_valid, "four of three, which the guard has to bear");
    for permit in &older {
        within(permit.lost()).await;
    }
    assert!(newer.is_valid());
}

/// The negative control of slots as resources: one resource for all slots refuses a holder that nobody replaced.
#[tokio::test]
async fn one_resource_for_all_slots_refuses_valid_holders() {
    let (server, storage) = (RedisServer::start().await, RedisServer::start().await);
    let locker = connect(&server).await;
    let guard = FencedRedis::new(own_client(&storage).await);
    let permits = three(&locker).await;
    for permit in permits.iter().rev() {
        assert!(writes(&guard, &permit.resource(), permit).await);
    }
    assert!(writes(&guard, NAME, &permits[2]).await);
    assert!(!writes(&guard, NAME, &permits[0]).await);
    assert!(permits[0].is_valid());
}
