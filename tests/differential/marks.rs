//! What the servers of a quorum know of themselves: random entries and checks on a real server and on
//! the model, which must reply the same.

use std::time::Duration;

use leasehold_engine::protocol::{Command, Enter, Entered, Incarnation, LockKey, Op, Reply, Terms};
use leasehold_engine::{ErrorKind, MemoryServer};
use leasehold_tests::{RedisServer, Resp};

use crate::real::Real;
use crate::samples::{FLOOR, acquire, batch, key, release};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        let random = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = random.wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn lease(&mut self) -> u32 {
        u32::try_from(self.below(3)).expect("it is below 3")
    }

    fn incarnation(&mut self) -> Incarnation {
        Incarnation(u128::from(self.below(4)) << 64 | 7)
    }

    fn enter(&mut self, mark: &LockKey) -> Command {
        let mut some = |most| -> Vec<_> {
            let count = self.below(most);
            (0..count).map(|_| self.incarnation()).collect()
        };
        let (remember, watch, forget) = (some(4), some(3), some(2));
        Command::Enter(Enter {
            key: mark.clone(),
            incarnation: self.incarnation(),
            terms: Some(Terms {
                longest: Duration::from_millis(10 + self.below(2)),
                remember,
                watch,
                forget,
            }),
        })
    }
}

fn check(mark: &LockKey, incarnation: Incarnation) -> Command {
    Command::Enter(Enter {
        key: mark.clone(),
        incarnation,
        terms: None,
    })
}

/// Both do the same, at the time of the real one; and it is returned what that is.
async fn both(real: &mut Real, model: &mut MemoryServer, ops: &[Op]) -> Vec<Reply> {
    let batch = real.run(ops).await.expect("it is answered");
    let time = batch.time.expect("it tells the time");
    assert_eq!(model.execute(time, ops), batch, "{ops:?}");
    let replies = batch.replies.into_iter();
    replies
        .map(|reply| reply.expect("none is refused"))
        .collect()
}

/// Returns the answer of a server that is told these terms.
async fn told(real: &mut Real, model: &mut MemoryServer, terms: Terms) -> Entered {
    let command = Command::Enter(Enter {
        key: key("x").mark(),
        incarnation: Incarnation(1),
        terms: Some(terms),
    });
    let replies = both(real, model, &batch([command])).await;
    match replies.into_iter().next() {
        Some(Reply::Entered(entered)) => entered,
        other => panic!("{other:?}"),
    }
}

fn terms(longest: u64) -> Terms {
    Terms {
        longest: Duration::from_millis(longest),
        remember: Vec::new(),
        watch: Vec::new(),
        forget: Vec::new(),
    }
}

/// Catches a server that takes in nobody any more, because it knows too many that are over; and one that drops the
/// newest, or that grows without a bound.
#[tokio::test]
async fn too_many_incarnations_take_the_place_of_those_that_were_told_longest_ago() {
    let (mut real, mut model) = (Real::start().await, MemoryServer::new());
    let own = Incarnation(1);
    for number in 1..=300 {
        let now = Incarnation(number);
        let terms = Terms {
            // The first is told again and again.
            remember: vec![own, now],
            watch: vec![Incarnation(number << 64)],
            ..terms(60_000)
        };
        let entered = told(&mut real, &mut model, terms).await;
        assert!(entered.known.contains(&own) && entered.known.contains(&now));
        assert!(entered.known.len() <= 256 && entered.watched.len() <= 16);
    }
    let entered = told(&mut real, &mut model, terms(60_000)).await;
    assert_eq!((entered.known.len(), entered.watched.len()), (256, 16));
    assert!(!entered.known.contains(&Incarnation(2)));
}

/// Catches a locker that makes every quarantine longer, or shorter than the leases of others.
#[tokio::test]
async fn a_server_that_votes_keeps_the_longest_time_to_live_that_it_was_told() {
    let (mut real, mut model) = (Real::start().await, MemoryServer::new());
    for longest in [60_000, 30_000] {
        let entered = told(&mut real, &mut model, terms(longest)).await;
        assert_eq!(entered.longest, Duration::from_millis(longest));
    }
    let own = Incarnation(1);
    let remember = vec![own];
    let terms_of = |longest| Terms {
        remember: remember.clone(),
        ..terms(longest)
    };
    let entered = told(&mut real, &mut model, terms_of(60_000)).await;
    assert_eq!((entered.known, entered.longest.as_secs()), (vec![own], 60));
    for longest in [30_000, 90_000] {
        let other = Terms {
            watch: vec![Incarnation(7)],
            forget: vec![own],
            ..terms(longest)
        };
        let entered = told(&mut real, &mut model, other).await;
        assert_eq!(entered.longest.as_secs(), 60);
        assert_eq!((entered.known, entered.watched), (vec![own], vec![]));
    }
}

/// Catches a quarantine that begins anew with each locker, or that no server measures.
#[tokio::test]
async fn a_server_says_for_how_long_it_has_watched_another() {
    let (mut real, mut model) = (Real::start().await, MemoryServer::new());
    let (one, other) = (Incarnation(7), Incarnation(8));
    let watch = Terms {
        watch: vec![one, other],
        ..terms(60_000)
    };
    told(&mut real, &mut model, watch.clone()).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    let entered = told(&mut real, &mut model, watch).await;
    let ages: Vec<_> = entered.watched.iter().map(|(_, age)| *age).collect();
    assert!(ages.len() == 2 && ages.iter().all(|age| age.as_millis() >= 30));
    let votes = Terms {
        remember: vec![one],
        ..terms(60_000)
    };
    let entered = told(&mut real, &mut model, votes).await;
    assert_eq!(entered.known, [one]);
    assert!(matches!(entered.watched[..], [(id, _)] if id == other));
}

async fn compare(seed: u64, rounds: u64, knows_processes: bool) -> Result<(), String> {
    let mut real = Real::start().await;
    let (mut model, mut random) = (MemoryServer::new(), Random(seed));
    let (name, mark) = (key("x"), key("x").mark());
    let (mut kinds, mut process) = ([0; 3], 0);
    for _ in 0..rounds {
        match random.below(20) {
            0 => {
                real.admin.flushall().await;
                model.flush();
            }
            1 => {
                // As of a server that loaded what another process had saved.
                real.admin
                    .command(&["HSET", mark.lock(), "run", "0f", "saved", ""])
                    .await;
                process += 1;
                model.begin_anew(if knows_processes { process } else { 0 });
            }
            2 => drop(real.admin.command(&["SAVE"]).await),
            _ => {}
        }
        let first = match random.below(3) {
            0 => random.enter(&mark),
            _ => check(&mark, random.incarnation()),
        };
        let ops = batch([
            first,
            Command::Acquire(acquire(&name, random.lease(), FLOOR)),
            release(&name, random.lease()),
        ]);
        let replied = real.run(&ops).await?;
        let time = replied.time.ok_or("it did not tell the time")?;
        let ours = model.execute(time, &ops);
        if ours != replied {
            return Err(format!("{ops:?}: {replied:?}, and not {ours:?}"));
        }
        let kind = match &replied.replies[0] {
            Ok(Reply::Intact) => 0,
            Ok(Reply::Forgot) => 1,
            Ok(Reply::Entered(_)) => 2,
            other => return Err(format!("{other:?}")),
        };
        kinds[kind] += 1;
    }
    assert!(kinds.iter().all(|count| *count > 10), "{kinds:?}");
    Ok(())
}

#[tokio::test]
async fn marks_are_what_the_model_has() {
    for seed in 0..3 {
        let same = compare(seed, 400, true).await;
        same.unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    }
}

/// The negative control.
#[tokio::test]
async fn a_model_that_takes_all_processes_for_one_is_found() {
    assert!(compare(0, 400, false).await.is_err());
}

/// Catches a mark that does not tell one process from another, which may have begun with old data: also
/// though nothing was saved since, or just now.
#[tokio::test]
async fn a_process_that_begins_with_what_was_saved_is_told_from_the_one_before() {
    let mut server = RedisServer::start().await;
    let (mark, one) = (key("x").mark(), Incarnation(1));
    for saves in [false, true] {
        let mut real = Real::on(server).await;
        let mut model = MemoryServer::new();
        real.admin.flushall().await;
        let terms = Terms {
            longest: Duration::from_secs(60),
            remember: vec![one],
            watch: Vec::new(),
            forget: Vec::new(),
        };
        let enter = Command::Enter(Enter {
            key: mark.clone(),
            incarnation: one,
            terms: Some(terms),
        });
        both(&mut real, &mut model, &batch([enter.clone()])).await;
        for _ in 0..3 {
            let checked = both(&mut real, &mut model, &batch([check(&mark, one)])).await;
            assert_eq!(checked, [Reply::Intact]);
            if saves {
                real.admin.command(&["SAVE"]).await;
            }
        }
        real.admin.command(&["SAVE"]).await;
        server = real.server;
        server.restart().await;
        let mut real = Real::on(server).await;
        model.begin_anew(1);
        let checked = both(&mut real, &mut model, &batch([check(&mark, one)])).await;
        assert_eq!(checked, [Reply::Forgot]);
        // What it knew of others it still knows.
        let Command::Enter(mut again) = enter else {
            panic!("it is one");
        };
        again.incarnation = Incarnation(2);
        let entered = both(&mut real, &mut model, &batch([Command::Enter(again)])).await;
        let Reply::Entered(entered) = &entered[0] else {
            panic!("{entered:?}");
        };
        assert_eq!(entered.incarnation, Incarnation(2));
        assert!(entered.known.contains(&one));
        server = real.server;
    }
}

/// Catches a mark that makes the process say who it is in each batch, which costs twice a lock.
#[tokio::test]
async fn a_check_asks_for_the_process_once_after_each_time_that_it_saved() {
    let mut real = Real::start().await;
    let (mark, one) = (key("x").mark(), Incarnation(1));
    let terms = Terms {
        longest: Duration::from_secs(60),
        remember: Vec::new(),
        watch: Vec::new(),
        forget: Vec::new(),
    };
    let enter = Command::Enter(Enter {
        key: mark.clone(),
        incarnation: one,
        terms: Some(terms),
    });
    real.run(&batch([enter])).await.expect("it is answered");
    // The server began a moment ago, and another that begins in this second would look the same.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    real.admin.command(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..50 {
        real.run(&batch([check(&mark, one)]))
            .await
            .expect("it is answered");
    }
    let calls = real.admin.info("commandstats", "cmdstat_info").await;
    assert!(calls.is_some_and(|calls| calls.starts_with("calls=1,")));
}

#[tokio::test]
async fn a_key_that_is_no_mark_lets_nothing_through_and_is_named() {
    let mut real = Real::start().await;
    let (name, mark) = (key("x"), key("x").mark());
    real.admin.int(&["RPUSH", mark.lock(), "a"]).await;
    let ops = batch([
        check(&mark, Incarnation(1)),
        Command::Acquire(acquire(&name, 1, FLOOR)),
    ]);
    let replied = real.run(&ops).await.expect("it is answered");
    assert_eq!(replied.replies, [Ok(Reply::Forgot), Ok(Reply::Forgot)]);
    let enter = batch([Random(1).enter(&mark)]);
    let replied = real.run(&enter).await.expect("it is answered");
    let error = replied.replies[0].as_ref().expect_err("it is a list");
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert!(error.to_string().contains(mark.lock()), "{error}");
    let exists = real.admin.command(&["EXISTS", name.lock()]).await;
    assert_eq!(exists, Resp::Integer(0));
}
