//! Cases of lines and lists that random sequences do not reach or the model cannot have: half of a line lost,
//! a full line, a user without the right to publish.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_engine::protocol::{
    Claim, ClientId, Command, Counter, Inspected, LeaseId, List, LockKey, News, Op, Pattern,
    Release, Reply,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{Error, ErrorKind, MemoryServer, Name};
use leasehold_tests::{RedisServer, eventually};

use crate::real::{Listener, Real};
use crate::samples::{
    FLOOR, NAMESPACE, WINDOW, acquire, batch, claim, force_release_of, inspect, key, list, raise,
    release, renew, token, told, wait,
};

const MOST_WAITERS: u32 = 65_536;
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) async fn run<const N: usize>(real: &mut Real, commands: [Command; N]) -> Vec<Reply> {
    let answer = real.run(&batch(commands)).await.expect("an answer");
    let replies: Result<Vec<Reply>, Error> = answer.replies.into_iter().collect();
    replies.expect("no operation is refused")
}

fn place(reply: &Reply) -> Option<u32> {
    let Reply::Busy { place, .. } = reply else {
        panic!("expected a busy lock, got {reply:?}");
    };
    place.map(NonZeroU32::get)
}

fn seen(reply: &Reply) -> &Inspected {
    let Reply::Inspected(seen) = reply else {
        panic!("expected an inspection, got {reply:?}");
    };
    seen
}

/// Returns the lease that holds the lock, or held it until it expired.
pub(crate) async fn holder(real: &mut Real, key: &LockKey) -> Option<u128> {
    let dump = real.dump().await.keys;
    let lines = dump.get(key.lock())?.value.lines();
    let mut fields = lines.filter_map(|line| line.split(' ').next());
    let lease = fields.find(|field| field.len() == 48)?;
    let lease: LeaseId = lease[..32]
        .parse()
        .expect("the field begins with a lease ID");
    Some(lease.0)
}

/// Returns when the holder's lease expires, in milliseconds.
async fn expiry(real: &mut Real, key: &LockKey) -> u64 {
    let dump = real.dump().await.keys;
    let lock = dump.get(key.lock()).expect("the lock is held");
    let field = lock.value.lines().find(|line| line.len() > 48);
    let value = field.and_then(|line| line.split(' ').nth(1));
    let digits = &value.expect("the lock is held")[..13];
    digits.parse().expect("the expiry is a number")
}

/// Returns how long the holder's lease still lasts, in milliseconds.
async fn left(real: &mut Real, key: &LockKey) -> u64 {
    let now = real.time().await.millis();
    expiry(real, key).await.saturating_sub(now)
}

/// The lowest score of a line's claims; members below say until when each claim is alive.
const LEAST_ARRIVAL: &str = "1000000000000000";

/// Gives lease 1 the lock and puts 2, 3 and 4 in line.
async fn lined_up(real: &mut Real, key: &LockKey) {
    let replies = run(real, [1, 2, 3, 4].map(|lease| wait(key, lease))).await;
    assert!(matches!(replies[0], Reply::Held(_)), "{replies:?}");
    let places: Vec<_> = replies[1..].iter().map(place).collect();
    assert_eq!(places, [Some(1), Some(2), Some(3)]);
}

/// Catches a script that takes waiters without a score for alive, or that puts a waiter that asks
/// again last.
#[tokio::test]
async fn without_what_says_who_is_alive_all_are_dead_until_they_ask_again() {
    let mut real = Real::start().await;
    let key = key("no alive");
    lined_up(&mut real, &key).await;
    assert_eq!(forget_who_is_alive(&mut real, &key).await, 3);
    let replies = run(&mut real, [inspect(&key), wait(&key, 3), inspect(&key)]).await;
    assert_eq!(
        (seen(&replies[0]).waiting, seen(&replies[0]).line.len()),
        (0, 0)
    );
    // It keeps its place behind a waiter that is not known to be alive.
    assert_eq!(place(&replies[1]), Some(2));
    assert_eq!(
        (seen(&replies[2]).waiting, seen(&replies[2]).line.len()),
        (1, 1)
    );
    let replies = run(&mut real, [release(&key, 1), wait(&key, 2)]).await;
    assert_eq!(replies[0], Reply::Released);
    assert_eq!(
        holder(&mut real, &key).await,
        Some(3),
        "the first waiter was dead"
    );
    // The dead waiter before it was dropped, the one behind it not yet.
    assert_eq!(place(&replies[1]), Some(2));
    assert_eq!(forget_who_is_alive(&mut real, &key).await, 1);
    run(&mut real, [release(&key, 3)]).await;
    let left = real.dump().await.keys;
    assert_eq!(left.keys().collect::<Vec<_>>(), [key.lock()]);
}

async fn forget_who_is_alive(real: &mut Real, key: &LockKey) -> i64 {
    let before = format!("({LEAST_ARRIVAL}");
    let forget = ["ZREMRANGEBYSCORE", &key.line(), "-inf", &before];
    real.admin.int(&forget).await
}

/// Catches a script that serves waiters without a place, or keeps them for ever.
#[tokio::test]
async fn waiters_without_claims_wait_only_after_they_ask_again() {
    let mut real = Real::start().await;
    let key = key("no queue");
    lined_up(&mut real, &key).await;
    let forget = ["ZREMRANGEBYSCORE", &key.line(), LEAST_ARRIVAL, "+inf"];
    assert_eq!(real.admin.int(&forget).await, 3);
    let replies = run(&mut real, [release(&key, 1), wait(&key, 4), wait(&key, 3)]).await;
    assert_eq!(replies[0], Reply::Released);
    assert!(matches!(replies[1], Reply::Held(_)), "{replies:?}");
    assert_eq!(place(&replies[2]), Some(1));
    run(&mut real, [release(&key, 4)]).await;
    assert_eq!(holder(&mut real, &key).await, Some(3));
    // The rests of 2 and 4 expire with the key, or go when they release.
    assert!(real.admin.int(&["PTTL", &key.line()]).await > 0);
    for (lease, left) in [(3, 1), (2, 1), (4, 0)] {
        run(&mut real, [release(&key, lease)]).await;
        assert_eq!(real.admin.int(&["EXISTS", &key.line()]).await, left);
    }
}

/// Catches a limit that is off by one, that turns away a client in line, or that nothing frees. With dense
/// tokens, the common case does not handle the line.
#[tokio::test]
async fn a_full_line_takes_no_more_waiters() {
    for (counter, retention) in [(Counter::Dense, 0), (FLOOR, 10_000_000)] {
        a_line_fills(counter, retention).await;
    }
}

async fn a_line_fills(counter: Counter, retention: u32) {
    const FILL: &str = "
      for i = 1, tonumber(ARGV[1]) do
        local member = string.format('%011d%05d%011d%032x%016xlsomebody', 60000, 60000, ARGV[3], i + 1000, 7)
        redis.call('ZADD', KEYS[1], 1000000000000000 + i, member, ARGV[2], 'a' .. member)
      end
      redis.call('HSET', KEYS[2], 'w', '', 'x', '')";
    // On a busy machine this test takes longer than a waiter usually stays alive, or a grant waits.
    let wait = |key: &LockKey, lease| {
        let mut ask = acquire(key, lease, counter);
        (ask.waits, ask.claim.window) = (true, Claim::LONGEST_WINDOW);
        Command::Acquire(ask)
    };
    let mut real = Real::start().await;
    let key = key("full");
    let replies = run(&mut real, [wait(&key, 1)]).await;
    let Reply::Held(held) = &replies[0] else {
        panic!("the lock was free: {replies:?}");
    };
    let release = Command::Release(Release {
        key: key.clone(),
        claim: claim(1, counter),
        token: Some(held.token),
        completes: false,
    });
    let live_until = (real.time().await + Duration::from_secs(600)).millis();
    let line = key.line();
    let [count, until, kept] = [
        u64::from(MOST_WAITERS - 1),
        live_until,
        u64::from(retention),
    ]
    .map(|number| number.to_string());
    let fill = ["EVAL", FILL, "2", &line, key.lock(), &count, &until, &kept];
    real.admin.command(&fill).await;

    let mut replies = Vec::new();
    for lease in [2, 3, 2] {
        // The common case does not handle a waiter that arrives in the microsecond of the one before.
        replies.extend(run(&mut real, [wait(&key, lease)]).await);
    }
    assert_eq!(place(&replies[0]), Some(MOST_WAITERS));
    let refused = Reply::Full {
        waiting: MOST_WAITERS,
    };
    assert_eq!(replies[1], refused);
    assert_eq!(place(&replies[2]), Some(MOST_WAITERS));
    let tries = Command::Acquire(acquire(&key, 3, counter));
    let replies = run(&mut real, [tries, inspect(&key)]).await;
    assert_eq!(place(&replies[0]), None);
    let looked = seen(&replies[1]);
    assert_eq!((looked.waiting, looked.line.len()), (MOST_WAITERS, 100));

    // A handoff makes room for one waiter, a death for one more.
    let replies = run(&mut real, [release, wait(&key, 3), wait(&key, 4)]).await;
    assert_eq!(place(&replies[1]), Some(MOST_WAITERS));
    assert_eq!(replies[2], refused);
    assert_eq!(holder(&mut real, &key).await, Some(1_001));
    let dying = format!(
        "a{:011}{:05}{retention:011}{:032x}{:016x}lsomebody",
        60_000, 60_000, 1_500, 7
    );
    real.admin.int(&["ZADD", &line, "1", &dying]).await;
    let replies = run(&mut real, [wait(&key, 4), wait(&key, 5)]).await;
    assert_eq!(place(&replies[0]), Some(MOST_WAITERS));
    assert_eq!(replies[1], refused);
}

/// Catches a script that fails without the right to publish, or that believes that a client heard it.
#[tokio::test]
async fn a_handover_without_the_right_to_publish_lasts_three_seconds() {
    let mut real = Real::start().await;
    let key = key("mute");
    let mut listener = Listener::connect(&real.server, ClientId(2)).await;
    listener.listen(true).await;
    let user = [
        "ACL",
        "SETUSER",
        "mute",
        "on",
        "nopass",
        "~*",
        "+@all",
        "resetchannels",
    ];
    real.admin.ok(&user).await;

    // Control: with the right to publish, the grant lasts for the whole window.
    lined_up(&mut real, &key).await;
    run(&mut real, [release(&key, 1)]).await;
    assert_eq!(holder(&mut real, &key).await, Some(2));
    assert!(left(&mut real, &key).await > 9_000);
    let pushes = listener.pushes().await.expect("messages");
    let news: Vec<_> = pushes.iter().map(|push| push.news).collect();
    assert!(matches!(news[..], [News::Granted { .. }]), "{pushes:?}");

    real.admin.ok(&["AUTH", "mute", "any"]).await;
    run(&mut real, [wait(&key, 5), release(&key, 2)]).await;
    assert_eq!(holder(&mut real, &key).await, Some(3));
    assert!((1..=6_000).contains(&left(&mut real, &key).await));
    let again = [
        release(&key, 3),
        wait(&key, 2),
        release(&key, 4),
        release(&key, 5),
    ];
    run(&mut real, again).await;
    assert_eq!(
        holder(&mut real, &key).await,
        Some(2),
        "the next waiter has the lock"
    );
    assert!((1..=6_000).contains(&left(&mut real, &key).await));
    let Some(token) = seen(&run(&mut real, [inspect(&key)]).await[0]).last_token else {
        panic!("the lock is held");
    };
    let freed = run(&mut real, [force_release_of(&key, token)]).await;
    assert_eq!(freed, [Reply::Released]);
    assert_eq!(listener.pushes().await, Ok(vec![]));
}

/// Catches a grant that promises more time than the lock has. A message that the server counts as heard by no
/// client does reach subscribers at a replica or at another node of a cluster.
#[tokio::test]
async fn a_grant_never_promises_more_than_the_lock_has() {
    let mut real = Real::start().await;
    let key = key("replicated");
    let replica = RedisServer::config().replica_of(&real.server).start().await;
    let mut listener = Listener::connect(&replica, ClientId(2)).await;
    listener.listen(true).await;
    replica.in_sync().await;
    lined_up(&mut real, &key).await;
    run(&mut real, [release(&key, 1)]).await;
    let expires = expiry(&mut real, &key).await;
    let pushes = eventually(LIMIT, "the message at the replica", async || {
        let pushes = listener.pushes().await.expect("messages");
        Some(pushes).filter(|pushes| !pushes.is_empty())
    })
    .await;
    let news: Vec<_> = pushes.iter().map(|push| push.news).collect();
    let [News::Granted { grant, .. }] = news[..] else {
        panic!("expected a grant, got {pushes:?}");
    };
    assert!(
        grant.expires.millis() <= expires,
        "the push says {grant:?}, and the lock expires at {expires}"
    );
}

/// Catches a lost cursor and a pattern that is too narrow: a walk in many steps and the model's in one step
/// return the same names, without keys of other namespaces or kinds.
#[tokio::test]
async fn a_walk_returns_the_held_locks() {
    let mut real = Real::start().await;
    let mut model = MemoryServer::new();
    let keys: Vec<LockKey> = (0..3_500)
        .map(|number| key(&format!("orders/{}*}}/{number}", number % 7)))
        .collect();
    for some in keys.chunks(500) {
        let take = |key: &LockKey| Command::Acquire(acquire(key, 1, FLOOR));
        let take = batch(some.iter().map(take));
        let now = told(&real.run(&take).await.expect("an answer"));
        model.execute(now, &take);
    }
    for other in [
        "{di[ff%7Der%3Aen*tial%25:orders}:line",
        "{di[ff:orders/0*}",
        "{di[ff%7Der%3Aen*tial%25:orders}",
        "orders",
    ] {
        real.admin.ok(&["SET", other, "x"]).await;
    }
    let now = real.time().await;
    for (pattern, count) in [
        ("*", 3_500),
        ("orders/3**/*", 500),
        ("orders/3*}/*", 500),
        ("orders/3%7D/*", 0),
        ("*/3499", 1),
        ("orders/?*", 0),
    ] {
        let (mut cursor, mut steps, mut found) = (0, 0, BTreeSet::new());
        loop {
            let (next, names) = step(&real.run(&walk(pattern, cursor)).await.expect("an answer"));
            found.extend(names);
            steps += 1;
            assert!(steps < 100, "the walk does not end");
            let Some(next) = next else { break };
            cursor = next;
        }
        assert!(steps > 2, "the walk took several steps");
        let (rest, ours) = step(&model.execute(now, &walk(pattern, 0)));
        assert_eq!((rest, ours.len()), (None, count), "{pattern:?}");
        assert_eq!(found, ours.into_iter().collect(), "{pattern:?}");
    }
}

fn walk(pattern: &str, cursor: u64) -> Vec<Op> {
    let pattern = Pattern::new(NAMESPACE, pattern).expect("a valid pattern");
    batch([Command::List(List { pattern, cursor })])
}

fn step(answer: &leasehold_engine::protocol::BatchReply) -> (Option<u64>, Vec<Name>) {
    let [Ok(Reply::Listed { cursor, names })] = &answer.replies[..] else {
        panic!("expected a step of a list, got {answer:?}");
    };
    (*cursor, names.clone())
}

/// Catches a line that never expires: it goes a minute after the last waiter's window.
#[tokio::test]
async fn an_abandoned_line_expires() {
    let mut real = Real::start().await;
    let key = key("forgotten");
    let answer = real
        .run(&batch([1, 2].map(|lease| wait(&key, lease))))
        .await;
    let now = told(&answer.expect("an answer"));
    let kept = (now + WINDOW + Duration::from_secs(60)).millis();
    assert_eq!(real.dump().await.keys[&key.line()].expires, Some(kept));
    // The latest expiry counts, also after a request with an earlier one.
    let short = Duration::from_millis(1_500);
    let Command::Acquire(mut ask) = wait(&key, 3) else {
        unreachable!("a waiter sends an acquisition");
    };
    ask.claim = Claim {
        window: short,
        ..ask.claim
    };
    let answer = real.run(&batch([Command::Acquire(ask)])).await;
    let now = told(&answer.expect("an answer"));
    let kept = (now + short + Duration::from_secs(60)).millis();
    assert_eq!(real.dump().await.keys[&key.line()].expires, Some(kept));
}

/// Catches a list that rejects the cursor of another walk, or that takes keys of other operations of its
/// batch.
#[tokio::test]
async fn a_list_amid_other_operations_has_no_keys() {
    let mut real = Real::start().await;
    let (first, second) = (key("first"), key("second"));
    let commands = [
        list(),
        wait(&first, 1),
        list(),
        wait(&second, 2),
        release(&first, 1),
        list(),
    ];
    let replies = run(&mut real, commands).await;
    let names = |reply: &Reply| match reply {
        Reply::Listed { names, .. } => names.iter().map(ToString::to_string).collect::<Vec<_>>(),
        other => panic!("expected a list, got {other:?}"),
    };
    assert_eq!(names(&replies[0]), [""; 0]);
    assert_eq!(names(&replies[2]), ["first"]);
    assert_eq!(names(&replies[5]), ["second"]);
}

/// Catches a script whose first write is one that Redis refuses when memory is full: the lock would be freed,
/// and waiters would learn of it only by asking.
#[tokio::test]
async fn a_lock_is_handed_on_when_memory_is_full() {
    let mut real = Real::start().await;
    let key = key("crowded");
    let mut listener = Listener::connect(&real.server, ClientId(2)).await;
    listener.listen(true).await;
    lined_up(&mut real, &key).await;
    real.admin.ok(&["CONFIG", "SET", "maxmemory", "1"]).await;
    // Control: a new waiter is refused, and present ones go on.
    let refused = real.run(&batch([wait(&key, 5)])).await;
    let refused = refused.expect("an answer").replies.remove(0);
    let refused = refused.expect_err("memory is full");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    // Each runs alone, since a write makes room for the next one in the same call.
    let replies = run(&mut real, [wait(&key, 4)]).await;
    assert_eq!(place(&replies[0]), Some(3));
    run(&mut real, [renew(&key, 1)]).await;
    run(&mut real, [raise(&key, 1, token(7))]).await;
    let replies = run(&mut real, [release(&key, 1)]).await;
    assert_eq!(replies, [Reply::Released]);
    assert_eq!(holder(&mut real, &key).await, Some(2));
    let pushes = listener.pushes().await.expect("messages");
    assert_eq!(pushes.len(), 1, "expected one push: {pushes:?}");
    let replies = run(&mut real, [force_release_of(&key, token(8))]).await;
    assert_eq!(replies, [Reply::Released]);
    assert_eq!(holder(&mut real, &key).await, Some(3));
    // The holder is gone, so the first waiter takes the lock.
    real.admin.int(&["DEL", key.lock()]).await;
    let replies = run(&mut real, [wait(&key, 4)]).await;
    assert!(matches!(replies[0], Reply::Held(_)), "{replies:?}");
}

/// Catches an operation that skips a very long row of dead waiters at once, during which the server would do
/// nothing else for a quarter of a second; one that lets others overtake the live waiter behind them; and one
/// that loses that waiter.
#[tokio::test]
async fn a_long_row_of_dead_waiters_delays_no_one_for_long() {
    let (mut real, mut model) = (Real::start().await, MemoryServer::new());
    let key = key("plague");
    let mut both = async |commands: Vec<Command>| {
        let batch = batch(commands);
        let answer = real.run(&batch).await.expect("an answer");
        // A batch that does not read the clock does not depend on the time.
        let now = answer.time.unwrap_or(ServerTime::from_micros(0));
        let modelled = model.execute(now, &batch);
        assert_eq!(answer.replies, modelled.replies);
        answer
            .replies
            .into_iter()
            .map(Result::unwrap)
            .collect::<Vec<_>>()
    };
    both(vec![wait(&key, 1)]).await;
    let dying = |lease| {
        let Command::Acquire(mut ask) = wait(&key, lease) else {
            unreachable!("a waiter sends an acquisition");
        };
        ask.claim.window = Duration::from_secs(1);
        Command::Acquire(ask)
    };
    // They all come at once, so that none removes dead waiters.
    let all: Vec<_> = (1_000..3_500).map(dying).chain([wait(&key, 2)]).collect();
    let places = both(all).await;
    assert_eq!(places.last().and_then(place), Some(2_501));
    eventually(LIMIT, "all waiters except one die", async || {
        seen(&both(vec![inspect(&key)]).await[0]).waiting == 1
    })
    .await;
    assert_eq!(both(vec![release(&key, 1)]).await, [Reply::Released]);
    // The lock is free, yet not for a newcomer, which is told to ask again at once.
    let tries = Command::Acquire(acquire(&key, 3, Counter::Dense));
    let replies = both(vec![inspect(&key), tries.clone(), inspect(&key)]).await;
    assert_eq!(
        (place(&replies[1]), &seen(&replies[0]).holder),
        (None, &None)
    );
    assert_eq!(seen(&replies[2]).holder, None);
    // Now the script sees the live waiter.
    let replies = both(vec![wait(&key, 3)]).await;
    assert_eq!(place(&replies[0]), Some(1));
    let replies = both(vec![inspect(&key), wait(&key, 2)]).await;
    assert!(seen(&replies[0]).holder.is_some());
    assert!(matches!(replies[1], Reply::Held(_)), "{replies:?}");
}
