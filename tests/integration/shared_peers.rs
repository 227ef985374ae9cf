//! Further bugs of other libraries, tried with shared names on a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use leasehold::Locker;
use leasehold_tests::{Admin, Mode, Proxy, RedisServer, eventually};
use tokio::time::sleep;

use crate::shared::{NAME, waiting, within};
use crate::{LIMIT, connect, millis};

/// A peer's bug: a weight of 4,000 broke `unpack` in the script.
#[tokio::test]
async fn a_weight_of_4000_is_refused_for_slots_and_fits_a_quota() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let slots = locker.semaphore(NAME, 5_000).expect("valid");
    let error = slots.acquire_many(4_000).await.expect_err("too heavy");
    assert!(
        error.is_config() && error.to_string().contains("from 1 to 64"),
        "{error}"
    );
    let all = slots.acquire_many(64).await.expect("a permit");
    assert_eq!(all.slots().len(), 64);
    let rows = locker.quota("rows", 5_000).expect("valid");
    let heavy = rows.acquire_many(4_000).await.expect("a permit");
    let other = rows.try_acquire_many(1_001).await.expect("an answer");
    assert!(heavy.is_valid() && other.is_none());
}

/// A peer's bug: permits that were held and renewed were lost under contention.
#[tokio::test]
async fn held_permits_are_not_lost_under_contention() {
    let server = RedisServer::start().await;
    let (locker, others) = (connect(&server).await, connect(&server).await);
    let held = locker.semaphore(NAME, 3).expect("valid").ttl(millis(1_500));
    let (first, second) = (held.acquire().await, held.acquire().await);
    let (first, second) = (first.expect("a permit"), second.expect("a permit"));
    let end = Instant::now() + Duration::from_secs(2);
    let callers = (0..20).map(|_| {
        let semaphore = others.semaphore(NAME, 3).expect("valid").ttl(millis(1_500));
        tokio::spawn(async move {
            let mut turns = 0;
            while Instant::now() < end {
                let permit = semaphore.acquire().await.expect("a permit");
                assert_eq!(permit.slot(), Some(2), "the others are held");
                permit.release().await.expect("it is held");
                turns += 1;
            }
            turns
        })
    });
    let callers: Vec<_> = callers.collect();
    for turns in within(join_all(callers)).await {
        assert!(turns.expect("no panic") > 0, "each caller has its turn");
    }
    assert!(first.is_valid() && second.is_valid());
    for permit in [first, second] {
        permit.release().await.expect("it is held");
    }
}

/// A peer's bug: a waiter that missed its wake-up hung for ever.
#[tokio::test]
async fn a_waiter_that_misses_its_wake_up_does_not_hang() {
    let server = RedisServer::start().await;
    let (locker, other) = (connect(&server).await, connect(&server).await);
    let mut admin = Admin::connect(&server).await;
    for name in ["one", "two", "three"] {
        let held = locker.semaphore(name, 1).expect("valid").acquire().await;
        let held = held.expect("a permit");
        let semaphore = other.semaphore(name, 1).expect("valid");
        let waiter = tokio::spawn(async move { semaphore.acquire().await });
        let in_line = async || {
            let seen = locker.inspect(name).await;
            seen.is_ok_and(|seen| seen.waiting == 1)
        };
        eventually(LIMIT, "a waiter in line", in_line).await;
        admin.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        held.release().await.expect("it is held");
        let permit = within(waiter).await.expect("no panic");
        assert_eq!(permit.expect("a permit").slot(), Some(0));
    }
}

/// A peer's bug: reading twice in one process left renewals behind for ever.
#[tokio::test]
async fn reading_twice_leaves_no_renewals_behind() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let mut admin = Admin::connect(&server).await;
    let prices = locker.rw_lock(NAME).expect("valid").ttl(millis(1_200));
    let prices = prices.owner("worker-7");
    let outer = prices.read().acquire().await.expect("a permit");
    let inner = prices.read().acquire().await.expect("a permit");
    assert_ne!(outer.token(), inner.token());
    inner.release().await.expect("it is held");
    let before = admin.command_calls("evalsha").await;
    sleep(millis(1_400)).await;
    assert!(outer.is_valid(), "it is renewed after the other's release");
    assert!(admin.command_calls("evalsha").await > before);
    outer.release().await.expect("it is held");
    let after = admin.command_calls("evalsha").await;
    sleep(millis(1_400)).await;
    assert_eq!(
        admin.command_calls("evalsha").await,
        after,
        "nothing is renewed"
    );
    let writer = prices.write().try_acquire().await.expect("an answer");
    assert!(writer.is_some(), "no reader is left");
}

/// Catches a canceled writer that still holds up the readers behind it.
#[tokio::test]
async fn a_canceled_writer_lets_the_readers_behind_it_in() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let prices = locker.rw_lock(NAME).expect("valid");
    let held = prices.read().acquire().await.expect("a permit");
    let writer = prices.write();
    let writer = tokio::spawn(async move { writer.acquire().await });
    waiting(&locker, 1).await;
    let reader = prices.read();
    let reader = tokio::spawn(async move { reader.acquire().await });
    waiting(&locker, 2).await;
    writer.abort();
    let reader = within(reader).await.expect("no panic");
    assert!(reader.expect("a permit").is_valid() && held.is_valid());
}

/// A peer's bug: readers that died without a release kept a writer out for longer than their leases, the longer the more
/// of them there were.
#[tokio::test]
async fn a_crowd_of_dead_readers_does_not_keep_a_writer_out() {
    const READERS: u32 = 350;
    let server = RedisServer::start().await;
    let link = Proxy::start(server.port()).await;
    let dead = Locker::connect(link.url()).await.expect("a server");
    let locker = connect(&server).await;
    // The set of holders lives as long as the last of them.
    let others = locker.rw_lock(NAME).expect("valid");
    let living = others.read().acquire().await.expect("a permit");
    let prices = dead.rw_lock(NAME).expect("valid").fixed();
    let prices = prices.ttl(millis(1_500));
    let readers = join_all((0..READERS).map(async |_| prices.read().acquire().await)).await;
    let readers: Vec<_> = readers
        .into_iter()
        .map(|reader| reader.expect("a permit"))
        .collect();
    link.set_both(Mode::BlackHole);
    for reader in &readers {
        within(reader.lost()).await;
    }
    // The server's expiry is a little later than the deadline.
    sleep(millis(50)).await;
    let writer = others.write();
    living.release().await.expect("it is held");
    let began = Instant::now();
    let permit = within(writer.acquire()).await.expect("a permit");
    assert!(began.elapsed() < millis(500), "{:?}", began.elapsed());
    permit.release().await.expect("it is held");
    assert!(writer.try_acquire().await.expect("an answer").is_some());
}

/// A case of a peer: callers for different numbers of slots contend. Catches a slot with two holders, more slots than
/// the capacity, and a caller that never gets all it asked for.
#[tokio::test]
async fn callers_of_different_weights_all_get_their_slots() {
    let server = RedisServer::start().await;
    let lockers = [connect(&server).await, connect(&server).await];
    let held = Arc::new([const { AtomicU32::new(0) }; 4]);
    let callers = (0..9_usize).map(|number| {
        let semaphore = lockers[number % 2].semaphore(NAME, 4).expect("valid");
        let (held, weight) = (held.clone(), 1 + number % 3);
        tokio::spawn(async move {
            for _ in 0..10 {
                let permit = semaphore.acquire_many(u32::try_from(weight).expect("a weight"));
                let permit = permit.await.expect("a permit");
                assert_eq!(permit.slots().len(), weight);
                for slot in permit.slots() {
                    let before = held[usize::from(*slot)].fetch_add(1, Ordering::SeqCst);
                    assert_eq!(before, 0, "{permit:?}");
                }
                tokio::task::yield_now().await;
                for slot in permit.slots() {
                    held[usize::from(*slot)].fetch_sub(1, Ordering::SeqCst);
                }
                permit.release().await.expect("it is held");
            }
        })
    });
    for caller in within(join_all(callers.collect::<Vec<_>>())).await {
        caller.expect("no panic");
    }
}

/// A case of a peer: asking for more than is free takes nothing. Catches slots that a refused caller keeps.
#[tokio::test]
async fn a_caller_that_gets_too_little_gets_nothing() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let gpus = locker.semaphore(NAME, 5).expect("valid");
    let held = gpus.acquire_many(3).await.expect("a permit");
    assert!(gpus.try_acquire_many(3).await.expect("an answer").is_none());
    let brief = gpus.acquire_many_within(3, millis(100)).await;
    assert!(brief.expect("an answer").is_none());
    let rest = gpus.try_acquire_many(2).await.expect("an answer");
    let rest = rest.expect("two are free");
    assert_eq!((held.slots(), rest.slots()), (&[0, 1, 2][..], &[3, 4][..]));
}

/// A case of a peer: a permit gets more time. Catches a time that only the client knows, and an expired permit that comes
/// back.
#[tokio::test]
async fn a_permit_gets_more_time_unless_it_has_expired() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let licenses = locker.semaphore(NAME, 2).expect("valid").fixed();
    let licenses = licenses.ttl(millis(1_000));
    let longer = licenses.acquire().await.expect("a permit");
    let brief = licenses.acquire().await.expect("a permit");
    longer
        .renew_for(Duration::from_secs(30))
        .await
        .expect("it is held");
    within(brief.lost()).await;
    let error = brief.renew().await.expect_err("it has expired");
    assert!(error.is_not_held(), "{error}");
    let other = connect(&server).await.semaphore(NAME, 2).expect("valid");
    let next = within(other.acquire()).await.expect("a permit");
    assert_eq!(next.slot(), Some(1));
    assert!(longer.is_valid() && longer.remaining() > Duration::from_secs(25));
    assert!(other.try_acquire().await.expect("an answer").is_none());
}

/// A case of a peer: a writer asks for reading, too. Here it does not overtake itself, and becomes a reader by
/// `downgrade`. Catches a reader beside a writer because they have one owner.
#[tokio::test]
async fn a_writer_is_not_let_in_beside_itself() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let prices = locker.rw_lock(NAME).expect("valid").owner("worker-7");
    let writer = prices.write().acquire().await.expect("a permit");
    for part in [prices.read(), prices.write()] {
        assert!(part.try_acquire().await.expect("an answer").is_none());
    }
    writer.downgrade().await.expect("it is a writer's");
    let reader = prices.read().try_acquire().await.expect("an answer");
    assert!(reader.is_some_and(|reader| reader.token() > writer.token()));
    assert!(
        prices
            .write()
            .try_acquire()
            .await
            .expect("an answer")
            .is_none()
    );
}

/// A case of a peer: the server goes away and comes back without data. Catches a holder that goes on, a waiter that
/// hangs, and tokens that begin anew.
#[tokio::test]
async fn a_server_that_comes_back_empty_gives_its_slots_anew() {
    let mut server = RedisServer::start().await;
    let (locker, other) = (connect(&server).await, connect(&server).await);
    let licenses = locker.semaphore(NAME, 2).expect("valid").ttl(millis(1_000));
    let held = [
        licenses.acquire().await.expect("a permit"),
        licenses.acquire().await.expect("a permit"),
    ];
    let waits = other.semaphore(NAME, 2).expect("valid");
    let waiter = tokio::spawn(async move { waits.acquire().await });
    waiting(&locker, 1).await;
    server.restart().await;
    for permit in &held {
        within(permit.lost()).await;
    }
    let next = within(waiter).await.expect("no panic").expect("a permit");
    assert_eq!(next.slot(), Some(0));
    assert!(held.iter().all(|permit| permit.token() < next.token()));
    for permit in held {
        let error = permit.release().await.expect_err("it is lost");
        assert!(error.is_not_held(), "{error}");
    }
    assert!(next.is_valid());
}

/// A case of a peer: ten callers of three keys, which each names in another order. Catches two that are inside at once,
/// and one that keeps a key behind.
#[tokio::test]
async fn ten_callers_of_three_keys_have_one_turn_each() {
    let server = RedisServer::start().await;
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]];
    let inside = Arc::new(AtomicU32::new(0));
    let mut callers = Vec::new();
    for number in 0..10 {
        let set = connect(&server).await.all(orders[number % 3]);
        let (set, inside) = (set.expect("valid"), inside.clone());
        callers.push(tokio::spawn(async move {
            let bundle = set.acquire().await.expect("a bundle");
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            assert_eq!(bundle.release().await.expect("it is held").len(), 3);
        }));
    }
    for caller in within(join_all(callers)).await {
        caller.expect("no panic");
    }
    let locker = connect(&server).await;
    let all = locker.all_at_once(orders[0]).expect("valid");
    assert!(all.try_acquire().await.expect("an answer").is_some());
}
