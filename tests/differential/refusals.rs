//! Keys that hold what is not a lock's, and servers that take no writes: each operation is
//! refused by itself, says why, and does nothing by halves.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::protocol::{Command, Counter, Grant, Inspected, Op, Reply};
use leasehold::time::ServerTime;
use leasehold::{Error, ErrorKind, FencingToken};
use leasehold_tests::{RedisServer, Resp, eventually};

use crate::real::{Dump, Entry, Real};
use crate::samples::{
    FLOOR, acquire, batch, every_operation, force_release, inspect, key, release, renew, wait,
};

const ID: &str = "00000000000000000000000000000001";
const CLIENT: &str = "0000000000000001";
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) type Replies = Vec<Result<Reply, Error>>;

/// Runs the commands, with another lock's acquisition before and after them, which must succeed;
/// the commands must leave their keys as they were. Returns their replies.
pub(crate) async fn run_amid_others(real: &mut Real, commands: Vec<Command>) -> Replies {
    let before = but_the_other(real.dump().await);
    let other = |lease| Command::Acquire(acquire(&key("other"), lease, FLOOR));
    let commands = [vec![other(77)], commands, vec![other(77)]].concat();
    let answer = real.run(&batch(commands)).await;
    let mut replies = answer.expect("the batch is answered").replies;
    for reply in [replies.remove(0), replies.pop().expect("it was asked for")] {
        assert!(matches!(reply, Ok(Reply::Held(_))), "{reply:?}");
    }
    let after = but_the_other(real.dump().await);
    assert_eq!(after, before, "something was done by halves");
    replies
}

fn but_the_other(mut dump: Dump) -> BTreeMap<String, Entry> {
    dump.keys.retain(|name, _| !name.contains(":other}"));
    dump.keys
}

pub(crate) fn assert_refused(reply: &Result<Reply, Error>, kind: ErrorKind, key: &str) {
    let error = reply.as_ref().expect_err("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(&format!("{key:?}")), "{error}");
}

#[tokio::test]
async fn a_lock_key_of_another_type_is_named() {
    let mut real = Real::start().await;
    let key = key("list");
    real.admin.int(&["RPUSH", &key.lock(), "a"]).await;
    let replies = run_amid_others(&mut real, every_operation(&key, 1)).await;
    for reply in &replies {
        assert_refused(reply, ErrorKind::WrongType, &key.lock());
    }
    assert_eq!(real.admin.int(&["LLEN", &key.lock()]).await, 1);
}

#[tokio::test]
async fn a_token_key_of_another_type_is_named() {
    let mut real = Real::start().await;
    let key = key("set");
    real.admin.int(&["SADD", &key.token(), "a"]).await;
    for counter in [FLOOR, Counter::Dense] {
        let commands = vec![
            Command::Acquire(acquire(&key, 1, counter)),
            renew(&key, 1),
            inspect(&key),
        ];
        let replies = run_amid_others(&mut real, commands).await;
        assert_refused(&replies[0], ErrorKind::WrongType, &key.token());
        assert_eq!(replies[1], Ok(Reply::Gone));
        assert_refused(&replies[2], ErrorKind::WrongType, &key.token());
    }
    assert_eq!(real.admin.int(&["SCARD", &key.token()]).await, 1);
}

#[tokio::test]
async fn what_is_not_a_lock_is_left_alone() {
    let mut real = Real::start().await;
    let key = key("foreign");
    let long = "9".repeat(30);
    let foreign = [
        String::new(),
        "hello".to_owned(),
        "42".to_owned(),
        format!("{ID}:{CLIENT}:0:l:x"),
        format!("{ID}:{CLIENT}:07:l:x"),
        format!("{ID}:{CLIENT}:9007199254740992:l:x"),
        format!("{ID}:{CLIENT}:{long}:l:x"),
        format!("{ID}:{CLIENT}:7:l:"),
        format!("{ID}:{CLIENT}:7:x:x"),
        format!("{ID}:{CLIENT}:7:l"),
        format!("{ID}:{CLIENT}::l:x"),
        format!("{ID}0:{CLIENT}:7:l:x"),
        format!("{ID}:0{CLIENT}:7:l:x"),
        format!(" {ID}:{CLIENT}:7:l:x"),
    ];
    for value in foreign {
        real.admin.ok(&["SET", &key.lock(), &value]).await;
        // A lease frees what bears its id, whatever follows.
        let lease = if value.starts_with(&format!("{ID}:")) {
            2
        } else {
            1
        };
        for reply in &run_amid_others(&mut real, every_operation(&key, lease)).await {
            assert_refused(reply, ErrorKind::WrongType, &key.lock());
        }
    }
}

#[tokio::test]
async fn what_is_not_a_counter_is_left_alone() {
    let mut real = Real::start().await;
    let key = key("counter");
    let token = key.token();
    let dense = Command::Acquire(acquire(&key, 1, Counter::Dense));
    let floor = Command::Acquire(acquire(&key, 1, FLOOR));
    for value in [
        "",
        "abc",
        "1.5",
        "007",
        "-0",
        " 1",
        "1e3",
        "9223372036854775808",
    ] {
        real.admin.ok(&["SET", &token, value, "EX", "1000"]).await;
        let commands = vec![dense.clone(), floor.clone(), inspect(&key)];
        for reply in &run_amid_others(&mut real, commands).await {
            assert_refused(reply, ErrorKind::WrongType, &token);
        }
    }
    for value in ["-1", "-5", "-9223372036854775808"] {
        real.admin.ok(&["SET", &token, value, "EX", "1000"]).await;
        let commands = vec![dense.clone(), inspect(&key)];
        for reply in &run_amid_others(&mut real, commands).await {
            assert_refused(reply, ErrorKind::WrongType, &token);
        }
    }
    // With the clock floor any number will do.
    let answer = real.run(&batch([floor])).await.expect("it is answered");
    let Ok(Reply::Held(held)) = answer.replies[0] else {
        panic!("a counter below 0 is lifted: {answer:?}");
    };
    assert_eq!(held.token.get(), answer.time.as_micros());
}

#[tokio::test]
async fn a_used_up_counter_gives_no_token_and_stays() {
    let mut real = Real::start().await;
    let key = key("used up");
    let token = key.token();
    let max = FencingToken::MAX;
    for counter in [FLOOR, Counter::Dense] {
        let commands = || {
            let take = Command::Acquire(acquire(&key, 1, counter));
            vec![take.clone(), take, renew(&key, 1), inspect(&key)]
        };
        let greater = max.get() + 1;
        for value in [max.get(), greater, i64::MAX.unsigned_abs() - 1] {
            let value = value.to_string();
            real.admin.ok(&["SET", &token, &value, "EX", "1000"]).await;
            let replies = run_amid_others(&mut real, commands()).await;
            assert_refused(&replies[0], ErrorKind::Store, &token);
            assert_refused(&replies[1], ErrorKind::Store, &token);
            assert_eq!(replies[2], Ok(Reply::Gone));
            if value == max.to_string() {
                assert_eq!(
                    replies[3],
                    Ok(Reply::Inspected(Inspected {
                        holder: None,
                        last_token: Some(max),
                        waiting: 0,
                        line: Vec::new(),
                    }))
                );
            } else {
                assert_refused(&replies[3], ErrorKind::WrongType, &token);
            }
        }
        let last = (max.get() - 1).to_string();
        real.admin.ok(&["SET", &token, &last]).await;
        let answer = real.run(&batch(commands())).await.expect("it is answered");
        let held =
            |reply: &_| matches!(reply, Ok(Reply::Held(Grant { token, .. })) if *token == max);
        assert!(answer.replies[..2].iter().all(held), "{answer:?}");
        real.run(&batch([release(&key, 1)]))
            .await
            .expect("it is answered");
    }
}

#[tokio::test]
async fn a_lock_without_an_expiry_is_busy_for_ever_but_its_holder_mends_it() {
    let mut real = Real::start().await;
    let key = key("persisted");
    let take = |lease| Command::Acquire(acquire(&key, lease, Counter::Dense));
    real.run(&batch([take(1)])).await.expect("it is answered");
    let busy = batch([take(2), inspect(&key)]);
    for mend in [renew(&key, 1), take(1)] {
        assert_eq!(real.admin.int(&["PERSIST", &key.lock()]).await, 1);
        let answer = real.run(&busy).await.expect("it is answered");
        let (expires, place) = (None, None);
        assert_eq!(answer.replies[0], Ok(Reply::Busy { expires, place }));
        let Ok(Reply::Inspected(Inspected {
            holder: Some(holder),
            ..
        })) = &answer.replies[1]
        else {
            panic!("it is held: {answer:?}");
        };
        assert_eq!(holder.expires, None);
        real.run(&batch([mend])).await.expect("it is answered");
        assert!(real.admin.int(&["PTTL", &key.lock()]).await > 500_000);
    }
    real.admin.int(&["PERSIST", &key.lock()]).await;
    let answer = real
        .run(&batch([force_release(&key)]))
        .await
        .expect("it is answered");
    assert_eq!(answer.replies, [Ok(Reply::Released)]);
}

#[tokio::test]
async fn an_unknown_operation_is_an_error_of_the_call() {
    let mut real = Real::start().await;
    let parts = ["the key", "conquer", "9007199254740991"].map(str::to_owned);
    let answer = real.script(1, &parts).await;
    assert_eq!(
        answer,
        Resp::Error("ERR leasehold: unknown operation".to_owned())
    );
    assert!(real.dump().await.keys.is_empty());
}

#[tokio::test]
async fn an_empty_batch_tells_the_time() {
    let mut real = Real::start().await;
    let before = real.time().await;
    let answer = real.run(&[]).await.expect("it is answered");
    assert!(before <= answer.time && answer.time <= real.time().await);
    assert_eq!(answer.replies, []);
}

#[tokio::test]
async fn a_replica_refuses_each_write_and_answers_the_rest() {
    let mut primary = Real::start().await;
    let (held, free) = (key("held"), key("free"));
    let take = Command::Acquire(acquire(&held, 1, Counter::Dense));
    primary.run(&batch([take])).await.expect("it is answered");
    let config = RedisServer::config().replica_of(&primary.server);
    let mut replica = Real::on(config.start().await).await;
    eventually(LIMIT, "the lock at the replica", async || {
        replica.dump().await.keys == primary.dump().await.keys
    })
    .await;
    let before = replica.dump().await.keys;

    let writes = [every_operation(&held, 1), every_operation(&free, 1)].concat();
    let mut ops = batch(writes);
    ops.push(Op {
        command: renew(&held, 1),
        not_after: ServerTime::from_micros(0),
    });
    ops.extend(batch([
        Command::Acquire(acquire(&held, 2, FLOOR)),
        wait(&held, 2),
    ]));
    let replies = replica.run(&ops).await.expect("it is answered").replies;
    for reply in &replies[..4] {
        assert_refused(reply, ErrorKind::ReadOnly, &held.lock());
    }
    assert!(matches!(&replies[4], Ok(Reply::Inspected(seen)) if seen.holder.is_some()));
    assert_refused(&replies[5], ErrorKind::ReadOnly, &free.lock());
    assert_eq!(replies[6], Ok(Reply::Gone));
    // Even to leave a line that is not there, and to delete a lock that is not there, is a write.
    assert_refused(&replies[7], ErrorKind::ReadOnly, &free.queue());
    assert_refused(&replies[8], ErrorKind::ReadOnly, &free.lock());
    assert!(matches!(&replies[9], Ok(Reply::Inspected(seen)) if seen.holder.is_none()));
    assert_eq!(replies[10], Ok(Reply::Late));
    let tried = &replies[11];
    assert!(
        matches!(
            tried,
            Ok(Reply::Busy {
                expires: Some(_),
                place: None
            })
        ),
        "{tried:?}"
    );
    assert_refused(&replies[12], ErrorKind::ReadOnly, &held.queue());
    assert_eq!(replica.dump().await.keys, before);
}
