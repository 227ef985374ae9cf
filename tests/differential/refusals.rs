//! Keys with foreign values, and servers that take no writes. Each operation is refused by itself, says why,
//! and changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_engine::protocol::{
    Admit, Command, Counter, Grant, Inspected, LockKey, Release, Reply, Resize, Vacate,
};
use leasehold_engine::{Error, ErrorKind, FencingToken, Share};
use leasehold_tests::{RedisServer, Resp, eventually};

use crate::real::{Dump, Entry, Real};
use crate::samples::{
    FLOOR, acquire, admit, batch, every_operation, inspect, key, raise, release, renew, told, wait,
};

const LIMIT: Duration = Duration::from_secs(10);

pub(crate) type Replies = Vec<Result<Reply, Error>>;

/// Runs the commands between two acquisitions of another lock, which must succeed. The commands must leave
/// their keys unchanged. Returns their replies.
pub(crate) async fn run_amid_others(real: &mut Real, commands: Vec<Command>) -> Replies {
    let before = but_the_other(real.dump().await);
    let other = |lease| Command::Acquire(acquire(&key("other"), lease, FLOOR));
    let commands = [vec![other(77)], commands, vec![other(77)]].concat();
    let answer = real.run(&batch(commands)).await;
    let mut replies = answer.expect("an answer").replies;
    for reply in [
        replies.remove(0),
        replies.pop().expect("the batch has a last reply"),
    ] {
        assert!(matches!(reply, Ok(Reply::Held(_))), "{reply:?}");
    }
    let after = but_the_other(real.dump().await);
    assert_eq!(after, before, "a refused operation changed the keys");
    replies
}

fn but_the_other(mut dump: Dump) -> BTreeMap<String, Entry> {
    dump.keys.retain(|name, _| !name.contains(":other}"));
    dump.keys
}

pub(crate) fn assert_refused(reply: &Result<Reply, Error>, kind: ErrorKind, key: &str) {
    let error = reply.as_ref().expect_err("the operation is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(&format!("{key:?}")), "{error}");
}

#[tokio::test]
async fn a_lock_key_of_another_type_is_named() {
    let mut real = Real::start().await;
    let key = key("list");
    real.admin.int(&["RPUSH", key.lock(), "a"]).await;
    let replies = run_amid_others(&mut real, every_operation(&key, 1)).await;
    for reply in &replies {
        assert_refused(reply, ErrorKind::WrongType, key.lock());
    }
    assert_eq!(real.admin.int(&["LLEN", key.lock()]).await, 1);
}

/// Stores a hash whose first field is the foreign one.
async fn set(real: &mut Real, key: &LockKey, fields: &[&str]) {
    real.admin.int(&["DEL", key.lock()]).await;
    let hset: Vec<&str> = ["HSET", key.lock()]
        .into_iter()
        .chain(fields.iter().copied())
        .collect();
    real.admin.int(&hset).await;
    real.admin.int(&["PEXPIRE", key.lock(), "1000000"]).await;
}

#[tokio::test]
async fn a_field_that_is_no_tenure_is_refused_and_kept() {
    let mut real = Real::start().await;
    let key = key("foreign");
    let (lease, token, until) = ("1".repeat(32), "0000000000000007", "9000000000000");
    let (field, client) = (format!("{lease}{token}"), "2".repeat(16));
    let value = format!("{until}{client}lx");
    let foreign = [
        ("a", "b"),
        ("", ""),
        (&*field, ""),
        (&*field, "x"),
        (&*field, &format!("{until}{client}l")),
        (&*field, &format!("{until}{client}xx")),
        (&*field, &format!("9e11000000000{client}lx")),
        (&*field, &format!("{until}{}lx", "g".repeat(16))),
        (&*field, &format!("{until}{client}")),
        (&format!("{lease}0000000000000000"), &value),
        (&format!("{lease}9007199254740992"), &value),
        (&format!("{lease}00000000000000 7"), &value),
        (&format!("{lease}000000000000000x"), &value),
        (&format!("{lease}0{token}"), &value),
        (&format!("{}{token}", "g".repeat(32)), &value),
    ];
    for (field, value) in foreign {
        for also_a_token in [false, true] {
            let mut fields = vec![field, value];
            if also_a_token {
                fields.extend(["t", "7"]);
            }
            set(&mut real, &key, &fields).await;
            let replies = run_amid_others(&mut real, every_operation(&key, 3)).await;
            for reply in &replies {
                assert_refused(reply, ErrorKind::WrongType, key.lock());
            }
        }
    }
    // Two tenures at once are invalid.
    let other = format!("{}{token}", "3".repeat(32));
    set(&mut real, &key, &[&field, &value, &other, &value, "t", "7"]).await;
    for reply in &run_amid_others(&mut real, every_operation(&key, 3)).await {
        assert_refused(reply, ErrorKind::WrongType, key.lock());
    }
    // Control: a single valid tenure is read.
    set(&mut real, &key, &[&field, &value, "t", "7"]).await;
    let replies = run_amid_others(&mut real, vec![inspect(&key)]).await;
    assert!(matches!(&replies[0], Ok(Reply::Inspected(seen)) if seen.holder.is_some()));
}

/// Catches a shared name that takes over the hash of another program, which would then expire, or deletes another
/// program's key where its holders belong.
#[tokio::test]
async fn a_shared_name_takes_no_key_of_another_program() {
    let mut real = Real::start().await;
    let key = key("foreign");
    let operations = |share: Share| {
        let asks = admit(&key, 1, (FLOOR, share));
        let leaves = Release {
            key: key.clone(),
            claim: asks.claim.clone(),
            token: None,
            completes: false,
        };
        let resizes = Resize {
            key: key.clone(),
            sharing: share.sharing(),
            capacity: share.capacity(),
            counter: FLOOR,
        };
        vec![
            Command::Admit(Admit(asks)),
            Command::Vacate(Vacate(leaves)),
            Command::Resize(resizes),
        ]
    };
    let (lock, holders) = (key.lock().to_owned(), key.holders());
    for (culprit, foreign) in [
        (&lock, ["HSET", &lock, "name", "Ada"]),
        (&holders, ["SADD", &holders, "a", "b"]),
        (&holders, ["ZADD", &holders, "1", "a"]),
    ] {
        real.admin.int(&["DEL", &lock, &holders]).await;
        real.admin.int(&foreign).await;
        for share in [Share::slots(1, 4), Share::units(1, 4), Ok(Share::writer())] {
            let share = share.expect("a share within the bounds");
            let replies = run_amid_others(&mut real, operations(share)).await;
            for reply in &replies {
                assert_refused(reply, ErrorKind::WrongType, culprit);
            }
        }
    }
    // Control: the name can be shared once the keys are gone.
    real.admin.int(&["DEL", &lock, &holders]).await;
    let free = operations(Share::writer());
    let answer = real.run(&batch(free)).await.expect("an answer");
    assert!(
        matches!(answer.replies[0], Ok(Reply::Admitted(..))),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_field_that_is_no_token_is_refused_and_kept() {
    let mut real = Real::start().await;
    let key = key("counter");
    let dense = Command::Acquire(acquire(&key, 1, Counter::Dense));
    let brief = Counter::ClockFloor {
        retention: Duration::from_secs(60),
    };
    let brief = Command::Acquire(acquire(&key, 1, brief));
    for value in [
        "",
        "abc",
        "1.5",
        "-0",
        "-1",
        " 1",
        "1e3",
        "0x7",
        "7++",
        "+7",
        "+",
        "9223372036854775808",
        "9007199254740992",
    ] {
        set(&mut real, &key, &["t", value]).await;
        let floor = Command::Acquire(acquire(&key, 1, FLOOR));
        let commands = vec![
            dense.clone(),
            brief.clone(),
            floor,
            renew(&key, 1),
            raise(&key, 1, FencingToken::MAX),
            inspect(&key),
        ];
        for reply in &run_amid_others(&mut real, commands).await {
            assert_refused(reply, ErrorKind::WrongType, key.lock());
        }
    }
}

#[tokio::test]
async fn the_clock_floor_lifts_a_token_below_the_clock() {
    let mut real = Real::start().await;
    let key = key("lifted");
    for value in ["0", "007", "34", "0000000000000034", "0000000000000034+"] {
        set(&mut real, &key, &["t", value]).await;
        let take = batch([Command::Acquire(acquire(&key, 1, FLOOR)), inspect(&key)]);
        let answer = real.run(&take).await.expect("an answer");
        let Ok(Reply::Held(held)) = answer.replies[0] else {
            panic!("{value:?} is lifted: {answer:?}");
        };
        assert_eq!(held.token.get(), told(&answer).as_micros());
        assert!(
            matches!(&answer.replies[1], Ok(Reply::Inspected(_))),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_used_up_counter_gives_no_token_and_stays() {
    let mut real = Real::start().await;
    let key = key("used up");
    let max = FencingToken::MAX;
    for counter in [FLOOR, Counter::Dense] {
        let commands = || {
            let take = Command::Acquire(acquire(&key, 1, counter));
            vec![take.clone(), take, renew(&key, 1), inspect(&key)]
        };
        set(&mut real, &key, &["t", &max.to_string()]).await;
        let replies = run_amid_others(&mut real, commands()).await;
        assert_refused(&replies[0], ErrorKind::Store, key.lock());
        assert_refused(&replies[1], ErrorKind::Store, key.lock());
        assert_eq!(replies[2], Ok(Reply::Gone));
        let last = Inspected {
            holder: None,
            last_token: Some(max),
            job: None,
            shared: None,
            waiting: 0,
            line: Vec::new(),
            wanted: None,
        };
        assert_eq!(replies[3], Ok(Reply::Inspected(last)));
        set(&mut real, &key, &["t", &(max.get() - 1).to_string()]).await;
        let answer = real.run(&batch(commands())).await.expect("an answer");
        let held =
            |reply: &_| matches!(reply, Ok(Reply::Held(Grant { token, .. })) if *token == max);
        assert!(answer.replies[..2].iter().all(held), "{answer:?}");
        let free = real.run(&batch([release(&key, 1)])).await;
        assert_eq!(free.expect("an answer").replies, [Ok(Reply::Released)]);
    }
}

/// Catches a lock that stays held when its key loses its expiry: a lease has its own, and the next holder
/// gives the key an expiry again.
#[tokio::test]
async fn a_key_without_an_expiry_keeps_no_lock() {
    let mut real = Real::start().await;
    let key = key("persisted");
    let take = |lease, ttl| {
        let mut acquire = acquire(&key, lease, FLOOR);
        acquire.claim.ttl = ttl;
        Command::Acquire(acquire)
    };
    let brief = take(1, Duration::from_millis(50));
    real.run(&batch([brief])).await.expect("an answer");
    assert_eq!(real.admin.int(&["PERSIST", key.lock()]).await, 1);
    let other = take(2, Duration::from_secs(60));
    eventually(LIMIT, "the lock expires", async || {
        let answer = real.run(&batch([other.clone()])).await;
        matches!(answer.expect("an answer").replies[0], Ok(Reply::Held(_)))
    })
    .await;
}

/// Catches a key that expires before the lease or before what it remembers: it outlives every lease by far.
#[tokio::test]
async fn a_key_outlives_the_lease_and_what_is_remembered() {
    const DAY: u64 = 86_400_000;
    let mut real = Real::start().await;
    for (retention, ttl, kept) in [
        (DAY, 600_000, DAY + 2_000_000),
        (DAY, 2 * DAY, 3 * DAY),
        (3_600_000, 3_600_000, 5_600_000),
        (3_599_999, 30_000, 3_629_999),
        (1_000, 30_000, 31_000),
    ] {
        let key = key("kept");
        real.admin.flushall().await;
        let counter = Counter::ClockFloor {
            retention: Duration::from_millis(retention),
        };
        let mut acquire = acquire(&key, 1, counter);
        acquire.claim.ttl = Duration::from_millis(ttl);
        let taken = real.run(&batch([Command::Acquire(acquire)])).await;
        let time = told(&taken.expect("an answer")).millis();
        let expires = real.dump().await.keys[key.lock()].expires;
        let expires = expires.expect("the key has an expiry");
        let expected = time + kept;
        assert!(
            (expected - 50..=expected + 50).contains(&expires),
            "{retention} {ttl}"
        );
    }
}

#[tokio::test]
async fn an_unknown_operation_is_an_error_of_the_call() {
    let mut real = Real::start().await;
    let parts = ["the key", "9007199254740991", "Q00000000000"].map(str::to_owned);
    let answer = real.script(1, &parts).await;
    assert_eq!(
        answer,
        Resp::Error("ERR leasehold: unknown operation".to_owned())
    );
    assert!(real.dump().await.keys.is_empty());
}

#[tokio::test]
async fn an_empty_batch_returns_the_time() {
    let mut real = Real::start().await;
    let before = real.time().await;
    let answer = real.run(&[]).await.expect("an answer");
    assert!(before <= told(&answer) && told(&answer) <= real.time().await);
    assert_eq!(answer.replies, []);
}

#[tokio::test]
async fn a_replica_refuses_writes_and_answers_reads() {
    let mut primary = Real::start().await;
    let (held, free) = (key("held"), key("free"));
    let take = Command::Acquire(acquire(&held, 1, Counter::Dense));
    primary.run(&batch([take])).await.expect("an answer");
    let config = RedisServer::config().replica_of(&primary.server);
    let mut replica = Real::on(config.start().await).await;
    eventually(LIMIT, "the lock at the replica", async || {
        replica.dump().await.keys == primary.dump().await.keys
    })
    .await;
    let before = replica.dump().await.keys;

    let writes = [every_operation(&held, 1), every_operation(&free, 1)].concat();
    let mut ops = batch(writes);
    ops.extend(batch([
        Command::Acquire(acquire(&held, 2, FLOOR)),
        wait(&held, 2),
    ]));
    let replies = replica.run(&ops).await.expect("an answer").replies;
    for reply in &replies[..7] {
        assert_refused(reply, ErrorKind::ReadOnly, held.lock());
    }
    assert!(matches!(&replies[7], Ok(Reply::Inspected(seen)) if seen.holder.is_some()));
    assert_refused(&replies[8], ErrorKind::ReadOnly, free.lock());
    assert_eq!(replies[9..11], [Ok(Reply::Gone), Ok(Reply::Gone)]);
    // Leaving a line that does not exist and deleting a lock that does not exist are writes, too.
    assert_refused(&replies[11], ErrorKind::ReadOnly, free.lock());
    assert_eq!(replies[12..14], [Ok(Reply::Gone), Ok(Reply::Gone)]);
    assert_refused(&replies[14], ErrorKind::ReadOnly, free.lock());
    assert!(matches!(&replies[15], Ok(Reply::Inspected(seen)) if seen.holder.is_none()));
    let tried = &replies[16];
    assert!(
        matches!(tried, Ok(Reply::Busy { place: None, .. })),
        "{tried:?}"
    );
    assert_refused(&replies[17], ErrorKind::ReadOnly, &held.line());
    assert_eq!(replica.dump().await.keys, before);
}
