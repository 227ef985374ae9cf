//! Many contenders for one name, without faults and while servers fail at random.

use std::env;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use leasehold::{FencingToken, Locker};
use leasehold_tests::{Random, RedisServer, crowding, eventually, within};

use crate::quorum::{held_at, start, urls};
use crate::{LIMIT, millis};

const CONTENDERS: usize = 16;
const TURNS: usize = 8;
const SHORT_TTL: Duration = Duration::from_secs(1);

/// Catches contenders that take servers from one another for ever, one that never gets its turn, two holders at
/// once, and a token that falls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_at_five_servers_all_get_their_turns() {
    let servers = start(5).await;
    let holder = Arc::new(Mutex::new(None::<FencingToken>));
    let contenders = (0..CONTENDERS).map(|_| {
        let (urls, holder) = (urls(&servers), holder.clone());
        tokio::spawn(async move {
            let locker = Locker::quorum(urls).await.expect("all are up");
            let lock = locker.lock("x").expect("valid");
            let mut waits = Vec::new();
            for _ in 0..TURNS {
                let begin = Instant::now();
                let lease = lock.acquire().await.expect("all are up");
                waits.push(begin.elapsed());
                let token = Some(lease.token());
                let last = holder
                    .lock()
                    .expect("no contender panics")
                    .replace(lease.token());
                assert!(token > last, "{token:?} after {last:?}");
                tokio::time::sleep(millis(2)).await;
                let now = *holder.lock().expect("no contender panics");
                assert_eq!(now, token, "another contender held the lock meanwhile");
                lease.release().await.expect("all are up");
            }
            waits
        })
    });
    let begin = Instant::now();
    let contenders = join_all(contenders.collect::<Vec<_>>());
    let all = within(LIMIT * 6, contenders).await.expect("in time");
    let turn = begin.elapsed() / u32::try_from(CONTENDERS * TURNS).expect("a small number");
    let mut waits = Vec::new();
    for (at, own) in all.into_iter().enumerate() {
        let mut own = own.expect("no panic");
        own.sort_unstable();
        println!("contender {at}: waited {:?} at the most", own[TURNS - 1]);
        waits.extend(own);
    }
    waits.sort_unstable();
    let (median, most) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("a turn {turn:?}; waits: median {median:?}, longest {most:?}");
    // Each of the others has its turn meanwhile; three times as long if some overtake.
    let fair = turn * u32::try_from(CONTENDERS).expect("a small number") * 3;
    let fair = fair.max(Duration::from_secs(2) * crowding());
    assert!(most <= fair, "{most:?}, a turn {turn:?}");
    let nothing = async || held_at(&servers).await == 0;
    eventually(LIMIT, "nothing is left", nothing).await;
}

/// Catches a lease that stays at a server that was paused: with this time to live it would block the lock for
/// half a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_servers_keep_no_abandoned_lease() {
    let servers = start(5).await;
    let over = Arc::new(AtomicBool::new(false));
    let contenders = (0..6).map(|_| {
        let (urls, over) = (urls(&servers), over.clone());
        tokio::spawn(async move {
            let builder = Locker::builder().command_timeout(millis(150));
            let locker = builder.quorum(urls).await.expect("all are up");
            let lock = locker
                .lock("x")
                .expect("valid")
                .ttl(Duration::from_secs(30));
            let (mut longest, mut turns) = (Duration::ZERO, 0);
            while !over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                let lease = lock.acquire().await.expect("three are up");
                (longest, turns) = (longest.max(begin.elapsed()), turns + 1);
                lease.release().await.expect("three are up");
            }
            (longest, turns)
        })
    });
    let contenders: Vec<_> = contenders.collect();
    let mut random = Random::new(std::process::id().into());
    for _ in 0..12 {
        let one = usize::try_from(random.below(5)).expect("a small number");
        for at in [0, one] {
            servers[at].pause();
        }
        tokio::time::sleep(millis(200 + random.below(300))).await;
        for at in [0, one] {
            servers[at].resume();
        }
        tokio::time::sleep(millis(random.below(500))).await;
    }
    over.store(true, Ordering::Relaxed);
    let all = within(LIMIT * 4, join_all(contenders))
        .await
        .expect("in time");
    let all: Vec<_> = all.into_iter().map(|own| own.expect("no panic")).collect();
    println!("longest waits and turns: {all:?}");
    let longest = all.iter().map(|(longest, _)| *longest).max();
    assert!(longest <= Some(LIMIT), "{longest:?}");
}

/// The time for which a lease is known to have been held.
struct Turn {
    token: FencingToken,
    from: Instant,
    to: Instant,
}

/// Catches a token that falls, and two holders at once, in 300 acquisitions or as many as
/// `LEASEHOLD_ACQUISITIONS` says (10,000 take some minutes). At most two of five servers are killed or paused
/// at any time; a killed server returns with its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_and_no_leases_overlap_while_servers_fail_at_random() {
    let wanted = env::var("LEASEHOLD_ACQUISITIONS").ok();
    let wanted = wanted.map_or(300, |wanted| wanted.parse().expect("a number"));
    let servers = join_all((0..5).map(|_| RedisServer::config().append_only().start())).await;
    let (all, done) = (urls(&servers), Arc::new(AtomicU64::new(0)));
    let over = AtomicBool::new(false);
    let contenders = (0..4).map(|_| tokio::spawn(contend(all.clone(), done.clone(), wanted)));
    let contenders: Vec<_> = contenders.collect();
    let begin = Instant::now();
    let work = async {
        let contenders = join_all(contenders).await;
        over.store(true, Ordering::Relaxed);
        contenders
    };
    let (contenders, (kills, pauses)) = tokio::join!(work, fail_at_random(servers, &over));
    let (mut turns, mut failed) = (Vec::new(), 0);
    for contender in contenders {
        let (own, errors) = contender.expect("no panic");
        turns.extend(own);
        failed += errors;
    }
    turns.sort_unstable_by_key(|turn| turn.from);
    for pair in turns.windows(2) {
        assert!(
            pair[0].token < pair[1].token,
            "{} and {}",
            pair[0].token,
            pair[1].token
        );
        assert!(
            pair[0].to <= pair[1].from,
            "two held: {} and {}",
            pair[0].token,
            pair[1].token
        );
    }
    println!(
        "{} acquisitions in {:?}, {failed} failed calls; {kills} servers killed, {pauses} paused",
        turns.len(),
        begin.elapsed()
    );
    assert!(kills > 0 && pauses > 0);
    assert!(turns.len() as u64 >= wanted);
}

async fn contend(urls: Vec<String>, done: Arc<AtomicU64>, wanted: u64) -> (Vec<Turn>, u32) {
    let builder = Locker::builder().command_timeout(millis(150));
    // A server that was killed votes again after this time.
    let locker = builder.longest_ttl(SHORT_TTL).quorum(urls).await;
    let lock = locker
        .expect("all are up")
        .lock("x")
        .expect("valid")
        .ttl(SHORT_TTL);
    let (mut turns, mut failed) = (Vec::new(), 0);
    while done.load(Ordering::Relaxed) < wanted {
        let Ok(lease) = lock.acquire().await else {
            failed += 1;
            continue;
        };
        let (token, from) = (lease.token(), Instant::now());
        if !lease.is_valid() {
            continue;
        }
        tokio::task::yield_now().await;
        let to = Instant::now();
        let to = if lease.is_valid() { to } else { from };
        turns.push(Turn { token, from, to });
        done.fetch_add(1, Ordering::Relaxed);
        failed += u32::from(lease.release().await.is_err());
    }
    (turns, failed)
}

/// Lets servers fail until it is over. Returns how many it killed and how many it paused.
async fn fail_at_random(mut servers: Vec<RedisServer>, over: &AtomicBool) -> (u32, u32) {
    let mut random = Random::new(std::process::id().into());
    let (mut kills, mut pauses) = (0, 0);
    while kills == 0 || pauses == 0 || !over.load(Ordering::Relaxed) {
        let one = random.below(5);
        let other = (one + 1 + random.below(4)) % 5;
        let pair = [one, other].map(|at| usize::try_from(at).expect("a small number"));
        let killed = pair.map(|_| random.below(2) == 0);
        for (at, killed) in pair.into_iter().zip(killed) {
            tokio::time::sleep(millis(random.below(100))).await;
            if killed {
                servers[at].kill();
                kills += 1;
            } else {
                servers[at].pause();
                pauses += 1;
            }
        }
        tokio::time::sleep(millis(random.below(600))).await;
        for (at, killed) in pair.into_iter().zip(killed) {
            if killed {
                servers[at].restart().await;
            } else {
                servers[at].resume();
            }
        }
        // No others may fail until the returned servers vote again.
        let rest = if killed.contains(&true) {
            SHORT_TTL + millis(500)
        } else {
            millis(300)
        };
        tokio::time::sleep(rest).await;
    }
    (kills, pauses)
}
