//! Semaphores, quotas, and readers and writers on a real server. Tests are named after the faults of other libraries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use leasehold::{ErrorKind, Finding, LeaseEvent, Locker, LossReason, Permit};
use leasehold_tests::{Admin, RedisServer, Resp, eventually};
use tokio::time::{sleep, timeout};

use crate::round_trips::subscribed;
use crate::{LIMIT, connect, millis};

pub(crate) const NAME: &str = "licenses";

/// Takes a permit in a process that dies: nothing is renewed or released any more.
async fn crash_with(server: &RedisServer, reads: bool, ttl: Duration) {
    let url = server.url();
    let dies = move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
        runtime.block_on(async {
            let locker = Locker::connect(&url).await.expect("a server");
            let permit = if reads {
                let prices = locker.rw_lock(NAME).expect("a valid name").ttl(ttl);
                prices.read().acquire().await
            } else {
                let one = locker.semaphore(NAME, 1).expect("a valid name").ttl(ttl);
                one.acquire().await
            };
            std::mem::forget(permit.expect("a permit"));
        });
        runtime.shutdown_background();
    };
    tokio::task::spawn_blocking(dies).await.expect("no panic");
}

pub(crate) async fn waiting(locker: &Locker, number: u32) {
    let in_line = async || {
        let seen = locker.inspect(NAME).await;
        seen.is_ok_and(|seen| seen.waiting == number)
    };
    eventually(LIMIT, "waiters in line", in_line).await;
}

/// Runs a command of Redis whose reply is a number.
async fn number(admin: &mut Admin, command: &[&str]) -> i64 {
    match admin.command(command).await {
        Resp::Integer(number) => number,
        reply => panic!("{command:?}: {reply:?}"),
    }
}

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(LIMIT, work).await.expect("in time")
}

/// Catches more holders than slots, a slot with two holders, and tokens of a slot that do not grow.
#[tokio::test]
async fn slots_have_one_holder_each_and_their_tokens_grow() {
    let server = RedisServer::start().await;
    let lockers = [connect(&server).await, connect(&server).await];
    let (held, tokens) = (
        Arc::new([const { AtomicU32::new(0) }; 3]),
        Arc::new([const { std::sync::Mutex::new(0) }; 3]),
    );
    let callers = (0..12).map(|number| {
        let (licenses, held, tokens) = (
            lockers[number % 2].semaphore(NAME, 3).expect("valid"),
            held.clone(),
            tokens.clone(),
        );
        tokio::spawn(async move {
            for _ in 0..20 {
                let permit = licenses.acquire().await.expect("a permit");
                let slot = usize::from(permit.slot().expect("a slot"));
                assert_eq!(held[slot].fetch_add(1, Ordering::SeqCst), 0, "{permit:?}");
                let before = {
                    let mut last = tokens[slot].lock().expect("no panic");
                    std::mem::replace(&mut *last, permit.token().get())
                };
                assert!(before < permit.token().get(), "{permit:?} after {before}");
                tokio::task::yield_now().await;
                held[slot].fetch_sub(1, Ordering::SeqCst);
                permit.release().await.expect("it is held");
            }
        })
    });
    for done in within(join_all(callers.collect::<Vec<_>>())).await {
        done.expect("no panic");
    }
}

/// A peer's bug: the number of available permits was wrong after a crash. The counter is the negative control: it stays
/// wrong.
#[tokio::test]
async fn available_permits_are_right_after_a_crash() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let mut admin = Admin::connect(&server).await;
    let taken = number(&mut admin, &["INCR", "counter"]).await;
    crash_with(&server, false, millis(400)).await;
    let one = locker.semaphore(NAME, 1).expect("valid").ttl(millis(400));
    let permit = within(one.acquire())
        .await
        .expect("the permit is free again");
    assert_eq!(permit.slot(), Some(0));
    let still = number(&mut admin, &["INCRBY", "counter", "0"]).await;
    assert_eq!((taken, still), (1, 1), "nobody frees the counter's permit");
}

/// A peer's bug: a dead reader's lock stayed alive while another reader of its process renewed.
#[tokio::test]
async fn a_dead_reader_is_not_kept_alive_by_another_reader_that_renews() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let prices = locker.rw_lock(NAME).expect("valid").ttl(millis(1_500));
    let lives = prices.read().acquire().await.expect("a permit");
    crash_with(&server, true, millis(1_500)).await;
    let shared = async || locker.inspect(NAME).await.expect("seen").shared;
    assert_eq!(shared().await.map(|shared| shared.held), Some(2));
    let one_left = async || shared().await.is_some_and(|shared| shared.held == 1);
    eventually(LIMIT, "the dead reader expires", one_left).await;
    assert!(lives.is_valid());
    drop(lives);
    let writer = within(prices.write().acquire()).await;
    writer
        .expect("the name is free")
        .release()
        .await
        .expect("it is held");
}

/// A peer's bug: readers shared one expiry.
#[tokio::test]
async fn readers_have_an_expiry_each() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let prices = locker.rw_lock(NAME).expect("valid").fixed();
    let short = prices.clone().ttl(millis(200)).read().acquire().await;
    let long = prices.ttl(Duration::from_secs(60)).read().acquire().await;
    let (short, long) = (short.expect("a permit"), long.expect("a permit"));
    assert_eq!(short.lost().await.reason, LossReason::Expired);
    assert!(long.is_valid() && long.remaining() > Duration::from_secs(50));
}

#[tokio::test]
async fn a_writer_among_coming_and_going_readers_is_not_starved() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let prices = locker.rw_lock(NAME).expect("valid");
    let readers: Vec<_> = (0..40)
        .map(|number| {
            let reader = prices.read();
            tokio::spawn(async move {
                sleep(millis(number * 2)).await;
                loop {
                    let permit = reader.acquire().await.expect("a permit");
                    sleep(millis(50)).await;
                    drop(permit);
                }
            })
        })
        .collect();
    sleep(millis(200)).await;
    for _ in 0..5 {
        let began = Instant::now();
        let writer = within(prices.write().acquire()).await.expect("a permit");
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
        let seen = locker
            .inspect(NAME)
            .await
            .expect("seen")
            .shared
            .expect("shared");
        assert_eq!((seen.held, seen.generation), (1, Some(writer.token())));
    }
    readers.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Catches a light caller that overtakes a heavy one, and a `try_acquire` that overtakes.
#[tokio::test]
async fn nobody_overtakes_a_heavy_waiter() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let gpus = locker.semaphore(NAME, 4).expect("valid");
    let (one, other) = (gpus.acquire_many(2).await, gpus.acquire().await);
    let (one, other) = (one.expect("a permit"), other.expect("a permit"));
    let heavy = {
        let gpus = gpus.clone();
        tokio::spawn(async move { gpus.acquire_many(3).await })
    };
    waiting(&locker, 1).await;
    assert!(gpus.try_acquire().await.expect("an answer").is_none());
    let light = {
        let gpus = gpus.clone();
        tokio::spawn(async move { gpus.acquire().await })
    };
    waiting(&locker, 2).await;
    drop(one);
    let heavy = within(heavy).await.expect("no panic").expect("a permit");
    assert_eq!(heavy.slots(), [0, 1, 3]);
    waiting(&locker, 1).await;
    drop(other);
    let light = within(light).await.expect("no panic").expect("a permit");
    assert_eq!(light.slot(), Some(2));
}

/// A peer's bug: expired permits stayed in memory.
#[tokio::test]
async fn expired_permits_do_not_stay_in_memory() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let mut admin = Admin::connect(&server).await;
    let one = locker.semaphore(NAME, 2).expect("valid").ttl(millis(1_000));
    let permit = one.clone().fixed().acquire().await.expect("a permit");
    permit.lost().await;
    sleep(millis(100)).await;
    let second = one.acquire().await.expect("a permit");
    assert_eq!(second.slot(), Some(0), "the expired permit's slot is free");
    let (key, holders) = ("{leasehold:licenses}", "{leasehold:licenses}:holders");
    let members = number(&mut admin, &["ZCARD", holders]).await;
    let fields = number(&mut admin, &["HLEN", key]).await;
    assert_eq!(
        (members, fields),
        (2, 3),
        "one permit, and the count of units"
    );
    for key in [key, holders] {
        let left = number(&mut admin, &["PTTL", key]).await;
        assert!(left > 0, "{key} has no expiry");
    }
    second.release().await.expect("it is held");
    let exists = number(&mut admin, &["EXISTS", holders]).await;
    assert_eq!(exists, 0, "no holder, no set");
}

/// A peer's bug: the release of an expired permit returned true.
#[tokio::test]
async fn releasing_an_expired_permit_fails() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let one = locker
        .semaphore(NAME, 1)
        .expect("valid")
        .ttl(millis(150))
        .fixed();
    let permit = one.acquire().await.expect("a permit");
    permit.lost().await;
    assert!(
        permit
            .release()
            .await
            .expect_err("it expired")
            .is_not_held()
    );
}

/// A peer's bug: the count of permits went below zero, because each acquisition set it.
#[tokio::test]
async fn clients_with_another_capacity_do_not_change_it() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let first = locker.semaphore(NAME, 2).expect("valid");
    let held = first.acquire().await.expect("a permit");
    let other = locker.semaphore(NAME, 5).expect("valid");
    let mut events = other.events();
    let second = other.acquire().await.expect("a permit");
    assert_eq!((second.capacity(), second.epoch()), (2, 1));
    within(events.next()).await.expect("acquired");
    match within(events.next()).await {
        Some(LeaseEvent::CapacityDiffers {
            capacity: 2,
            wanted: 5,
            ..
        }) => {}
        event => panic!("{event:?}"),
    }
    let found = Finding::Capacity {
        name: other.name().clone(),
        capacity: 2,
        wanted: 5,
    };
    assert!(locker.findings().contains(&found), "{found}");
    assert!(other.try_acquire().await.expect("an answer").is_none());
    assert!(
        other
            .strict()
            .try_acquire()
            .await
            .expect("an answer")
            .is_none()
    );
    drop(second);
    let strict = locker.semaphore(NAME, 5).expect("valid").strict();
    let error = within(strict.acquire())
        .await
        .expect_err("another capacity");
    assert!(
        error.is_config() && error.to_string().contains(NAME),
        "{error}"
    );
    drop(held);
}

#[tokio::test]
async fn a_resize_admits_waiters_and_a_shrink_drains() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let licenses = locker.semaphore(NAME, 1).expect("valid");
    let first = licenses.acquire().await.expect("a permit");
    let waits = licenses.clone();
    let second = tokio::spawn(async move { waits.acquire().await });
    waiting(&locker, 1).await;
    assert_eq!(licenses.resize(3).await.expect("resized"), 2);
    let second = within(second).await.expect("no panic").expect("a permit");
    let third = licenses.acquire().await.expect("a permit");
    assert_eq!((second.slot(), third.slot()), (Some(1), Some(2)));
    assert_eq!(licenses.resize(1).await.expect("resized"), 3);
    for permit in [&first, &second, &third] {
        assert!(permit.is_valid(), "nobody is revoked");
    }
    drop((first, second));
    assert!(licenses.try_acquire().await.expect("an answer").is_none());
    third.release().await.expect("it is held");
    let last = within(licenses.acquire()).await.expect("a permit");
    assert_eq!(last.slot(), Some(0));
}

#[tokio::test]
async fn one_name_has_one_use_and_bad_numbers_are_named() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let _held: Permit = locker
        .semaphore(NAME, 2)
        .expect("valid")
        .acquire()
        .await
        .expect("a permit");
    let others = [
        locker.quota(NAME, 2).expect("valid").acquire().await.err(),
        locker
            .rw_lock(NAME)
            .expect("valid")
            .read()
            .acquire()
            .await
            .err(),
        locker.lock(NAME).expect("valid").acquire().await.err(),
    ];
    for error in others {
        let error = error.expect("another use");
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(
            error.to_string().contains("used for a semaphore"),
            "{error}"
        );
    }
    let bad = [
        locker.semaphore(NAME, 0).err(),
        locker.semaphore(NAME, 10_001).err(),
        locker.quota(NAME, 1_000_000_001).err(),
        locker
            .semaphore(NAME, 3)
            .expect("valid")
            .acquire_many(0)
            .await
            .err(),
        locker
            .semaphore(NAME, 3)
            .expect("valid")
            .acquire_many(4)
            .await
            .err(),
    ];
    for error in bad {
        let error = error.expect("out of bounds");
        assert!(
            error.is_config() && error.to_string().contains(NAME),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_large_quota_is_counted_in_one_step() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let rows = locker.quota(NAME, 1_000_000_000).expect("valid");
    let most = rows.acquire_many(999_999_999).await.expect("a permit");
    let last = rows.acquire().await.expect("a permit");
    assert_eq!((most.slot(), &*last.resource()), (None, NAME));
    assert!(rows.try_acquire().await.expect("an answer").is_none());
    drop(most);
    let most = within(rows.acquire_many(999_999_999)).await;
    drop(most.expect("a permit"));
}

#[tokio::test]
async fn holders_are_listed_inspected_and_ended_one_by_one() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let locker = subscribed(&server, &mut admin).await;
    let licenses = locker.semaphore(NAME, 3).expect("valid").owner("worker-7");
    let first = licenses.acquire().await.expect("a permit");
    let second = licenses.acquire_many(2).await.expect("a permit");
    let seen = locker
        .inspect(NAME)
        .await
        .expect("seen")
        .shared
        .expect("shared");
    assert_eq!((seen.capacity, seen.used, seen.held), (3, 3, 2));
    let of_second = seen
        .holders
        .iter()
        .find(|permit| permit.token == second.token());
    let of_second = of_second.expect("among the holders");
    assert_eq!((&*of_second.slots, of_second.weight), (&[1, 2][..], 2));
    assert_eq!(of_second.by, "worker-7");
    let names: Vec<_> = locker.list("*").try_collect().await.expect("a list");
    assert!(names.iter().any(|name| name.as_str() == NAME), "{names:?}");
    let error = locker.force_release(NAME).await.expect_err("two holders");
    assert!(error.is_config(), "{error}");
    let freed = locker.force_release_token(NAME, second.token()).await;
    assert_eq!(
        freed.expect("released").map(|holder| holder.token),
        Some(second.token())
    );
    assert_eq!(within(second.lost()).await.reason, LossReason::Revoked);
    assert!(first.is_valid());
}

/// Catches a release that admits only the first reader.
#[tokio::test]
async fn a_run_of_readers_is_admitted_at_once() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let prices = locker.rw_lock(NAME).expect("valid");
    let writer = prices.write().acquire().await.expect("a permit");
    let readers: Vec<_> = (0..30)
        .map(|_| {
            let reader = prices.read();
            tokio::spawn(async move { reader.acquire().await })
        })
        .collect();
    waiting(&locker, 30).await;
    let began = Instant::now();
    let token = writer.token();
    writer.release().await.expect("it is held");
    for reader in within(join_all(readers)).await {
        let reader = reader.expect("no panic").expect("a permit");
        assert_eq!(reader.generation(), Some(token));
    }
    // The first heartbeat would come after more than a second.
    assert!(began.elapsed() < millis(900), "{:?}", began.elapsed());
}

/// Catches a stream that does not ask again after a loss, and one that takes more than one slot.
#[tokio::test]
async fn a_held_slot_is_taken_again_after_a_loss() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let licenses = locker.semaphore(NAME, 2).expect("valid");
    let mut permits = licenses.hold();
    let first = within(permits.try_next()).await.expect("a permit");
    let first = first.expect("not shut down");
    let freed = locker.force_release_token(NAME, first.token()).await;
    assert!(freed.expect("released").is_some());
    let second = within(permits.try_next()).await.expect("a permit");
    let second = second.expect("not shut down");
    assert_eq!(second.slot(), Some(0));
    assert!(second.token() > first.token() && !first.is_valid());
    let shared = locker.inspect(NAME).await.expect("seen").shared;
    assert_eq!(shared.map(|shared| shared.held), Some(1));
    drop(second);
    locker.shutdown().await;
    assert!(within(permits.try_next()).await.expect("an end").is_none());
}

/// Catches a downgrade that lets a writer in between, and one that leaves readers waiting.
#[tokio::test]
async fn a_writer_becomes_a_reader_without_letting_go() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let prices = locker.rw_lock(NAME).expect("valid");
    let first = prices.write().acquire().await.expect("a permit");
    let (other, second) = (prices.read(), prices.write());
    let reader = tokio::spawn(async move { other.acquire().await });
    waiting(&locker, 1).await;
    let writer = tokio::spawn(async move { second.acquire().await });
    waiting(&locker, 2).await;
    first.downgrade().await.expect("it is a writer's");
    let reader = within(reader).await.expect("no panic").expect("a permit");
    assert_eq!(reader.generation(), Some(first.token()));
    first.downgrade().await.expect("a retry changes nothing");
    let error = reader.downgrade().await.expect_err("it is a reader's");
    assert!(
        error.is_config() && error.to_string().contains(NAME),
        "{error}"
    );
    drop(reader);
    waiting(&locker, 1).await;
    assert!(first.is_valid(), "the writer waits for it");
    let token = first.token();
    drop(first);
    let writer = within(writer).await.expect("no panic").expect("a permit");
    assert!(writer.token() > token);
}
