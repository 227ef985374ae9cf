//! Keys of the line with foreign values. Each operation that needs the line is refused and names the key. A
//! held lock can still be freed and renewed.

use leasehold_engine::protocol::{Command, Counter, LockKey, Reclaim, Reply};
use leasehold_engine::{ErrorKind, Owner};
use leasehold_tests::Resp;

use crate::real::Real;
use crate::refusals::{assert_refused, run_amid_others};
use crate::samples::{
    acquire, batch, first_token, force_release, inspect, key, release, renew, wait,
};

/// Stores a value that a line's key must not have.
async fn spoil(real: &mut Real, key: &str, kind: &str) {
    let command: &[&str] = match kind {
        "string" => &["SET", key, "x"],
        "list" => &["RPUSH", key, "x"],
        "set" => &["SADD", key, "x"],
        "hash" => &["HSET", key, "x", "y"],
        other => panic!("unknown kind {other}"),
    };
    let done = real.admin.command(command).await;
    assert!(!matches!(done, Resp::Error(_)), "{done:?}");
}

/// Flags the lock as if a waiter had been in line before.
async fn flag(real: &mut Real, key: &LockKey) {
    let flags = ["HSET", key.lock(), "w", "", "x", ""];
    real.admin.int(&flags).await;
}

/// Returns true if a tenure is stored, expired or not.
async fn has_a_tenure(real: &mut Real, key: &LockKey) -> bool {
    let dump = real.dump().await.keys;
    let hash = dump.get(key.lock());
    hash.is_some_and(|hash| hash.value.lines().any(|line| line.len() > 48))
}

#[tokio::test]
async fn a_line_of_another_type_is_named() {
    let mut real = Real::start().await;
    for kind in ["string", "list", "set", "hash"] {
        for (name, flagged) in [("alone", false), ("with a waiter", true)] {
            let key = key(name);
            let line = key.line();
            real.admin.flushall().await;
            let take = batch([wait(&key, 1)]);
            real.run(&take).await.expect("an answer");
            spoil(&mut real, &line, kind).await;
            if flagged {
                flag(&mut real, &key).await;
            }
            let commands = vec![wait(&key, 2), inspect(&key), release(&key, 3)];
            let replies = run_amid_others(&mut real, commands).await;
            for reply in &replies {
                assert_refused(reply, ErrorKind::WrongType, &line);
            }
            frees_without_the_line(&mut real, &key).await;
        }
    }
}

/// Checks that renewals, retries, tries and releases of a held lock do not need the line.
async fn frees_without_the_line(real: &mut Real, key: &LockKey) {
    let tries = Command::Acquire(acquire(key, 2, Counter::Dense));
    let commands = [wait(key, 1), renew(key, 1), tries, release(key, 1)];
    let answer = real.run(&batch(commands)).await.expect("an answer");
    let replies = answer.replies;
    assert!(matches!(replies[0], Ok(Reply::Held(_))), "{replies:?}");
    assert!(
        matches!(replies[1], Ok(Reply::Renewed { .. })),
        "{replies:?}"
    );
    assert!(
        matches!(replies[2], Ok(Reply::Busy { place: None, .. })),
        "{replies:?}"
    );
    assert_eq!(replies[3], Ok(Reply::Released));
    assert!(!has_a_tenure(real, key).await);
    let answer = real.run(&batch([force_release(key)])).await;
    assert_eq!(answer.expect("an answer").replies, [Ok(Reply::Gone)]);
}

/// Catches a script that takes a foreign member for a claim, or that keeps a lock held because of one.
#[tokio::test]
async fn a_member_that_is_not_a_claim_is_refused_but_keeps_no_lock() {
    let mut real = Real::start().await;
    let key = key("junk");
    let (id, client, numbers) = ("0".repeat(32), "0".repeat(16), "0".repeat(27));
    let junk = [
        String::new(),
        "junk".to_owned(),
        format!("{numbers}{id}{client}l"),
        format!("{numbers}{id}{client}xx"),
        format!("{}-1{id}{client}lx", "0".repeat(25)),
        format!("{}1.5{id}{client}lx", "0".repeat(24)),
        format!("{}{id}{client}lx", "0".repeat(26)),
        format!("{numbers}{}{client}lx", "g".repeat(32)),
        format!("{numbers}{id}{}lx", "g".repeat(16)),
        format!("{numbers} {id}{client}lx"),
    ];
    for member in junk {
        for force in [false, true] {
            real.admin.flushall().await;
            real.run(&batch([wait(&key, 1)])).await.expect("an answer");
            let (line, mark) = (key.line(), format!("a{member}"));
            let (arrival, live_until) = ("9007199254740991", "999999999999999");
            let join = ["ZADD", &line, arrival, &member, live_until, &mark];
            real.admin.int(&join).await;
            flag(&mut real, &key).await;
            let replies = run_amid_others(&mut real, vec![inspect(&key)]).await;
            assert_refused(&replies[0], ErrorKind::WrongType, &line);
            let free = if force {
                force_release(&key)
            } else {
                release(&key, 1)
            };
            let answer = real.run(&batch([free])).await.expect("an answer");
            assert!(answer.replies[0].is_ok(), "{answer:?}");
            assert!(!has_a_tenure(&mut real, &key).await, "{member:?}");
            let replies = run_amid_others(&mut real, vec![wait(&key, 1)]).await;
            assert_refused(&replies[0], ErrorKind::WrongType, &line);
            // Once it counts as dead, it blocks no waiter.
            real.admin.int(&["ZADD", &line, "1", &mark]).await;
            let answer = real.run(&batch([wait(&key, 1)])).await.expect("an answer");
            assert!(
                matches!(answer.replies[0], Ok(Reply::Held(_))),
                "{answer:?}"
            );
        }
    }
}

/// Catches a script that takes the lock over, notifies the earlier incarnation, and then reports a failure.
#[tokio::test]
async fn a_reclaim_that_is_refused_takes_nothing() {
    let mut real = Real::start().await;
    let key = key("reclaimed");
    let owner = Owner::reclaimable("job").expect("a valid owner");
    let take = |lease| {
        let mut acquire = acquire(&key, lease, Counter::Dense);
        acquire.claim.owner = owner.clone();
        acquire.reclaims = Reclaim::From(first_token());
        Command::Acquire(acquire)
    };
    let spoilt = key.line();
    real.run(&batch([take(1)])).await.expect("an answer");
    spoil(&mut real, &spoilt, "string").await;
    let before = real.dump().await.keys;
    let answer = real.run(&batch([take(2)])).await.expect("an answer");
    let after = real.dump().await.keys;
    match &answer.replies[0] {
        Ok(reply) => assert!(matches!(reply, Reply::Held(_)), "{reply:?}"),
        refused => {
            assert_refused(refused, ErrorKind::WrongType, &spoilt);
            assert_eq!(after, before, "a refused operation changed the keys");
        }
    }
}
