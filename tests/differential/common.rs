//! Cases that the script's common paths must leave to the rest. Random sequences seldom bring them there.

use std::time::Duration;

use leasehold_engine::ErrorKind;
use leasehold_engine::protocol::{Command, Grant, LockKey, Release, Renew, Reply};

use crate::line::{holder, run};
use crate::model::member;
use crate::real::Real;
use crate::refusals::assert_refused;
use crate::samples::{FLOOR, acquire, batch, claim, key};

fn hold(key: &LockKey, lease: u32) -> Command {
    Command::Acquire(acquire(key, lease, FLOOR))
}

fn wait(key: &LockKey, lease: u32) -> Command {
    let mut ask = acquire(key, lease, FLOOR);
    ask.waits = true;
    Command::Acquire(ask)
}

fn release(key: &LockKey, lease: u32, held: &Grant) -> Command {
    Command::Release(Release {
        key: key.clone(),
        claim: claim(lease, FLOOR),
        token: Some(held.token),
        completes: false,
    })
}

fn held(reply: &Reply) -> &Grant {
    let Reply::Held(held) = reply else {
        panic!("expected a grant, got {reply:?}");
    };
    held
}

/// Catches a renewal that revives a lease which has expired, although its fields are still there.
#[tokio::test]
async fn an_expired_lease_is_not_renewed() {
    let mut real = Real::start().await;
    let key = key("expired");
    let mut ask = acquire(&key, 1, FLOOR);
    ask.claim.ttl = Duration::from_millis(20);
    let replies = run(&mut real, [Command::Acquire(ask)]).await;
    let held = held(&replies[0]);
    while real.time().await.millis() <= held.expires.millis() {}
    let renew = Command::Renew(Renew {
        key: key.clone(),
        lease: claim(1, FLOOR).lease,
        token: held.token,
        counter: FLOOR,
        ttl: Duration::from_secs(600),
        floor: None,
    });
    assert_eq!(run(&mut real, [renew]).await, [Reply::Gone]);
}

/// Catches a release that hands the lock to a waiter that has died.
#[tokio::test]
async fn a_handover_skips_a_dead_waiter() {
    for dead in [false, true] {
        let mut real = Real::start().await;
        let key = key("dead");
        let replies = run(&mut real, [hold(&key, 1), wait(&key, 2), wait(&key, 3)]).await;
        if dead {
            let mark = format!("a{}", member(&claim(2, FLOOR)));
            let past = (real.time().await.millis() - 1).to_string();
            let dies = ["ZADD", &key.line(), "XX", "CH", &past, &mark];
            assert_eq!(real.admin.int(&dies).await, 1);
        }
        run(&mut real, [release(&key, 1, held(&replies[0]))]).await;
        let next = if dead { 3 } else { 2 };
        assert_eq!(holder(&mut real, &key).await, Some(next));
    }
}

/// Catches a handover that sets no expiry although the last token is of an earlier step of the clock: a line
/// that is never empty would let the key expire, and with it the token.
#[tokio::test]
async fn a_handover_in_a_later_step_refreshes_the_keys_expiry() {
    let mut real = Real::start().await;
    let key = key("step");
    let replies = run(&mut real, [hold(&key, 1), wait(&key, 2)]).await;
    let earlier = held(&replies[0]).token.get() - 3_600_000_000;
    let last = ["HSET", key.lock(), "t", &format!("{earlier:016}")];
    real.admin.int(&last).await;
    real.admin.int(&["PEXPIRE", key.lock(), "700000"]).await;
    run(&mut real, [release(&key, 1, held(&replies[0]))]).await;
    assert_eq!(holder(&mut real, &key).await, Some(2));
    let left = real.admin.int(&["PTTL", key.lock()]).await;
    assert!(left > 10_000_000, "the key expires in {left} ms");
}

/// Catches a handover that takes its token from the clock although the last token is ahead of it, as after a clock was
/// set back.
#[tokio::test]
async fn a_handover_has_a_greater_token_than_one_ahead_of_the_clock() {
    let mut real = Real::start().await;
    let key = key("ahead");
    let replies = run(&mut real, [hold(&key, 1), wait(&key, 2)]).await;
    let ahead = held(&replies[0]).token.get() + 60_000_000;
    let last = ["HSET", key.lock(), "t", &format!("{ahead:016}")];
    real.admin.int(&last).await;
    run(&mut real, [release(&key, 1, held(&replies[0]))]).await;
    assert_eq!(holder(&mut real, &key).await, Some(2));
    let last = real.admin.string(&["HGET", key.lock(), "t"]).await;
    let last = last.expect("a token is remembered");
    let token: u64 = last.trim_end_matches('+').parse().expect("digits");
    assert!(token > ahead, "{token} was granted after {ahead}");
}

/// Catches an acquisition that is refused and leaves its tenure behind: nobody would have the lock until it
/// expires.
#[tokio::test]
async fn an_acquisition_that_may_set_no_expiry_leaves_no_tenure() {
    let mut real = Real::start().await;
    let key = key("no expiry");
    let user = [
        "ACL", "SETUSER", "lasting", "on", "nopass", "~*", "&*", "+@all", "-pexpire",
    ];
    real.admin.ok(&user).await;
    real.admin.ok(&["AUTH", "lasting", "any"]).await;
    let answer = real.run(&batch([hold(&key, 1)])).await.expect("an answer");
    assert_refused(&answer.replies[0], ErrorKind::Auth, key.lock());
    assert_eq!(holder(&mut real, &key).await, None);
}
