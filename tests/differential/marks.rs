//! The state that a quorum's servers keep of themselves: random entries and checks on a real server and on
//! the model must get the same replies.

use std::time::Duration;

use leasehold_engine::protocol::{Command, Enter, Entered, Incarnation, LockKey, Op, Reply, Terms};
use leasehold_engine::{ErrorKind, MemoryServer};
use leasehold_tests::{Random, RedisServer, Resp};

use crate::real::Real;
use crate::samples::{FLOOR, acquire, batch, key, release};

fn some_lease(random: &mut Random) -> u32 {
    u32::try_from(random.below(3)).expect("the number is below 3")
}

fn some_incarnation(random: &mut Random) -> Incarnation {
    Incarnation(u128::from(random.below(4)) << 64 | 7)
}

fn enter(random: &mut Random, mark: &LockKey) -> Command {
    let mut some = |most| -> Vec<_> {
        let count = random.below(most);
        (0..count).map(|_| some_incarnation(random)).collect()
    };
    let (remember, watch, forget) = (some(4), some(3), some(2));
    Command::Enter(Enter {
        key: mark.clone(),
        incarnation: some_incarnation(random),
        terms: Some(Terms {
            longest: Duration::from_millis(10 + random.below(2)),
            remember,
            watch,
            forget,
        }),
    })
}

fn check(mark: &LockKey, incarnation: Incarnation) -> Command {
    Command::Enter(Enter {
        key: mark.clone(),
        incarnation,
        terms: None,
    })
}

/// Runs both at the time of the real server and checks that they agree. Returns the replies.
async fn both(real: &mut Real, model: &mut MemoryServer, ops: &[Op]) -> Vec<Reply> {
    let batch = real.run(ops).await.expect("an answer");
    let time = batch.time.expect("the batch reads the clock");
    assert_eq!(model.execute(time, ops), batch, "{ops:?}");
    let replies = batch.replies.into_iter();
    replies
        .map(|reply| reply.expect("no operation is refused"))
        .collect()
}

/// Returns the answer of a server that gets these terms.
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

/// Catches a server that accepts no new incarnation because it knows too many old ones, one that drops the
/// newest, and one that grows without a bound.
#[tokio::test]
async fn new_incarnations_replace_the_ones_told_longest_ago() {
    let (mut real, mut model) = (Real::start().await, MemoryServer::new());
    let own = Incarnation(1);
    for number in 1..=300 {
        let now = Incarnation(number);
        let terms = Terms {
            // The first incarnation is told again and again.
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
async fn a_server_reports_how_long_it_has_watched_another() {
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
    let (mut model, mut random) = (MemoryServer::new(), Random::new(seed));
    let (name, mark) = (key("x"), key("x").mark());
    let (mut kinds, mut process) = ([0; 3], 0);
    for _ in 0..rounds {
        match random.below(20) {
            0 => {
                real.admin.flushall().await;
                model.flush();
            }
            1 => {
                // The state of a server that loaded what another process had saved.
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
            0 => enter(&mut random, &mark),
            _ => check(&mark, some_incarnation(&mut random)),
        };
        let ops = batch([
            first,
            Command::Acquire(acquire(&name, some_lease(&mut random), FLOOR)),
            release(&name, some_lease(&mut random)),
        ]);
        let replied = real.run(&ops).await?;
        let time = replied.time.ok_or("the reply has no time")?;
        let ours = model.execute(time, &ops);
        if ours != replied {
            return Err(format!(
                "{ops:?}: the server replied {replied:?}, the model {ours:?}"
            ));
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
async fn marks_match_the_model() {
    for seed in 0..3 {
        let same = compare(seed, 400, true).await;
        same.unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    }
}

/// The negative control of the comparison.
#[tokio::test]
async fn a_model_that_takes_all_processes_for_one_is_found() {
    assert!(compare(0, 400, false).await.is_err());
}

/// Catches a mark that does not distinguish a process from one that restarted with old data, also if nothing
/// was saved since, or just now.
#[tokio::test]
async fn a_process_that_loads_saved_data_differs_from_the_one_before() {
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
        // The server still knows other servers.
        let Command::Enter(mut again) = enter else {
            panic!("the command is an entry");
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

/// Catches a mark that makes the server name its process in each batch, which would double the cost of a
/// lock.
#[tokio::test]
async fn a_check_asks_for_the_process_once_after_each_save() {
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
    real.run(&batch([enter])).await.expect("an answer");
    // The server began a moment ago, and another one that begins in this second would look the same.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    real.admin.command(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..50 {
        real.run(&batch([check(&mark, one)]))
            .await
            .expect("an answer");
    }
    let calls = real.admin.info("commandstats", "cmdstat_info").await;
    assert!(calls.is_some_and(|calls| calls.starts_with("calls=1,")));
}

#[tokio::test]
async fn a_key_that_is_no_mark_is_named_and_lets_no_operation_through() {
    let mut real = Real::start().await;
    let (name, mark) = (key("x"), key("x").mark());
    real.admin.int(&["RPUSH", mark.lock(), "a"]).await;
    let ops = batch([
        check(&mark, Incarnation(1)),
        Command::Acquire(acquire(&name, 1, FLOOR)),
    ]);
    let replied = real.run(&ops).await.expect("an answer");
    assert_eq!(replied.replies, [Ok(Reply::Forgot), Ok(Reply::Forgot)]);
    let enter = batch([enter(&mut Random::new(1), &mark)]);
    let replied = real.run(&enter).await.expect("an answer");
    let error = replied.replies[0].as_ref().expect_err("the key has a list");
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert!(error.to_string().contains(mark.lock()), "{error}");
    let exists = real.admin.command(&["EXISTS", name.lock()]).await;
    assert_eq!(exists, Resp::Integer(0));
}
