//! Jobs on a real server: each tick is completed once, and never lost while a runner lives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use leasehold::{Claimed, ErrorKind, Job, LeaseEvent, Locker, Missed, Turn};
use leasehold_tests::{RedisServer, eventually};
use tokio::time::timeout;

use crate::{LIMIT, connect, held, millis};

fn job(locker: &Locker) -> Job {
    locker.job("report").expect("a valid name")
}

async fn turn(job: &Job, tick: u64) -> Turn {
    match job.claim(tick).await {
        Ok(Claimed::Turn(turn)) => turn,
        other => panic!("tick {tick} is not given: {other:?}"),
    }
}

#[tokio::test]
async fn a_completed_tick_is_given_to_nobody_again() {
    let server = RedisServer::start().await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let first = turn(&job(&one), 5).await;
    let token = first.token();
    assert!(matches!(
        job(&other).try_claim(5).await,
        Ok(Claimed::InProgress)
    ));
    first.done().await.expect("the store confirms it");
    for tick in [5, 4, 1] {
        match job(&other).claim(tick).await {
            Ok(Claimed::Completed(done)) => {
                assert_eq!((done.tick, done.token), (5, token));
                assert!(done.ago < LIMIT && !done.by.is_empty(), "{done:?}");
            }
            claimed => panic!("tick {tick}: {claimed:?}"),
        }
    }
    assert!(turn(&job(&other), 6).await.token() > token);
}

#[tokio::test]
async fn a_tick_that_was_given_back_goes_to_the_runner_in_line() {
    let server = RedisServer::start().await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let first = turn(&job(&one), 5).await;
    let token = first.token();
    let waiting = tokio::spawn(async move { turn(&job(&other), 5).await });
    crate::in_line(&one, "report").await;
    drop(first);
    let second = timeout(LIMIT, waiting)
        .await
        .expect("in time")
        .expect("no panic");
    assert!(second.token() > token);
    second.done().await.expect("the store confirms it");
}

/// Catches waiters for a completed tick that are told only at their next heartbeat, or handed the tick.
#[tokio::test]
async fn runners_in_line_are_told_at_once_that_the_tick_is_completed() {
    let server = RedisServer::start().await;
    let one = connect(&server).await;
    let first = turn(&job(&one), 5).await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let other = connect(&server).await;
        waiting.push(tokio::spawn(async move { job(&other).claim(5).await }));
    }
    let in_line = async || {
        one.inspect("report")
            .await
            .is_ok_and(|seen| seen.waiting == 4)
    };
    eventually(LIMIT, "four runners in line", in_line).await;
    first.done().await.expect("the store confirms it");
    for waiting in waiting {
        // The first heartbeat would come after more than a second.
        let claimed = timeout(millis(900), waiting).await.expect("told at once");
        assert!(
            matches!(claimed, Ok(Ok(Claimed::Completed(_)))),
            "{claimed:?}"
        );
    }
    let seen = one.inspect("report").await.expect("it can be inspected");
    assert!(seen.holder.is_none() && seen.waiting == 0, "{seen:?}");
}

#[tokio::test]
async fn the_tick_of_a_runner_that_died_goes_to_the_next() {
    let server = RedisServer::start().await;
    let other = connect(&server).await;
    let url = server.url();
    // A runtime that ends takes the runner with it: nothing is renewed or released any more.
    let dies = move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
        let token = runtime.block_on(async {
            let locker = Locker::connect(&url)
                .await
                .expect("the server can be reached");
            let turn = turn(&job(&locker).ttl(millis(1_000)), 5).await;
            let token = turn.token();
            std::mem::forget(turn);
            token
        });
        runtime.shutdown_background();
        token
    };
    let token = tokio::task::spawn_blocking(dies).await.expect("no panic");
    let seen = other.inspect("report").await.expect("it can be inspected");
    assert_eq!(seen.job.and_then(|job| job.begun), Some(5));
    let job = job(&other);
    let second = timeout(LIMIT, turn(&job, 5)).await.expect("in time");
    assert!(second.token() > token);
}

#[tokio::test]
async fn a_name_is_a_job_or_a_lock() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    turn(&job(&locker), 1)
        .await
        .done()
        .await
        .expect("confirmed");
    let lock = locker.lock("report").expect("a valid name");
    let error = lock.try_acquire().await.expect_err("it is a job");
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.to_string().contains("used for a job"), "{error}");
    held(&locker, "lock")
        .await
        .release()
        .await
        .expect("confirmed");
    let lock = locker.job("lock").expect("a valid name");
    let error = lock.try_claim(1).await.expect_err("it is a lock");
    assert_eq!(error.kind(), ErrorKind::WrongType);
    assert!(error.to_string().contains("used for a lock"), "{error}");
}

#[tokio::test]
async fn bad_input_is_refused_by_name() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let hour = Duration::from_secs(3_600);
    let cases = [
        (job(&locker).claim(0).await, "tick 0"),
        (job(&locker).claim(1 << 53).await, "9007199254740992"),
        (job(&locker).every(millis(9)).claim(1).await, "period"),
        (job(&locker).every(hour * 24 * 367).claim(1).await, "period"),
        (
            job(&locker).every(hour).claim(9_000_000_000_000_000).await,
            "not due yet",
        ),
        (
            job(&locker).cron("61 * * * *", "UTC").claim(1).await,
            "61 * * * *",
        ),
        (
            job(&locker).cron("0 0 30 2 *", "UTC").claim(1).await,
            "never due",
        ),
        (
            job(&locker).cron("* * * * *", "Mars/North").claim(1).await,
            "Mars/North",
        ),
        (job(&locker).missed(Missed::All(0)).claim(1).await, "missed"),
        (
            job(&locker).ttl(Duration::ZERO).claim(1).await,
            "time to live",
        ),
    ];
    for (claimed, culprit) in cases {
        let error = claimed.expect_err(culprit);
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(culprit), "{error}");
    }
    let error = job(&locker)
        .turns()
        .try_next()
        .await
        .expect_err("there is no schedule");
    assert!(error.to_string().contains("no schedule"), "{error}");
}

/// The record of what every runner did: the ticks with the tokens of the turns that began and completed them.
type Record = Arc<Mutex<BTreeMap<u64, Vec<leasehold::FencingToken>>>>;

/// Catches a tick that runs twice although nothing fails, or that no runner runs.
#[tokio::test]
async fn every_tick_runs_once_in_a_fleet() {
    let server = RedisServer::start().await;
    let record = Record::default();
    let mut runners = Vec::new();
    for _ in 0..4 {
        let (locker, record) = (connect(&server).await, record.clone());
        runners.push(tokio::spawn(async move {
            let job = job(&locker).every(millis(100));
            let mut turns = job.turns();
            loop {
                let turn = turns.try_next().await.expect("no error").expect("no end");
                let done = (turn.tick(), turn.token());
                turn.done().await.expect("the store confirms it");
                let mut record = record.lock().expect("no panic");
                record.entry(done.0).or_default().push(done.1);
            }
        }));
    }
    let enough = async || record.lock().expect("no panic").len() >= 20;
    eventually(LIMIT, "20 ticks", enough).await;
    runners.iter().for_each(tokio::task::JoinHandle::abort);
    let record = record.lock().expect("no panic");
    assert!(
        record.values().all(|tokens| tokens.len() == 1),
        "{record:?}"
    );
    let ticks: Vec<_> = record.keys().copied().collect();
    let skipped = ticks
        .windows(2)
        .filter(|two| two[1] - two[0] != 100)
        .count();
    assert!(
        skipped <= 2,
        "a busy machine may skip one or two: {ticks:?}"
    );
}

#[tokio::test]
async fn missed_ticks_are_skipped_or_run() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let period = Duration::from_secs(3_600);
    let daily = |missed| job(&locker).every(period).missed(missed);
    let due = daily(Missed::Skip)
        .due()
        .await
        .expect("no error")
        .expect("one");
    let hour = 3_600_000;
    turn(&daily(Missed::Skip), due - 24 * hour)
        .await
        .done()
        .await
        .expect("confirmed");
    let mut waits = daily(Missed::Skip).turns();
    assert!(
        timeout(millis(300), waits.next()).await.is_err(),
        "it waits for the next tick"
    );
    let mut all = daily(Missed::All(3)).turns();
    for (tick, missed) in [(due - 2 * hour, 21), (due - hour, 0)] {
        let turn = all.try_next().await.expect("no error").expect("a turn");
        assert_eq!((turn.tick(), turn.missed()), (tick, missed));
        turn.done().await.expect("confirmed");
    }
    let mut latest = daily(Missed::Latest).turns();
    let turn = latest.try_next().await.expect("no error").expect("a turn");
    assert_eq!((turn.tick(), turn.missed()), (due, 0));
    let at = turn.scheduled_for().expect("it has a schedule");
    assert_eq!(at, std::time::UNIX_EPOCH + millis(due));
}

#[tokio::test]
async fn a_failing_tick_is_tried_once_by_each_runner_and_events_tell() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let mut events = locker.events();
    let mut runs = Vec::new();
    let job = job(&locker).every(millis(100));
    let run = job.run(async |turn| {
        runs.push(turn.tick());
        match runs.len() {
            1 => Err("it fails"),
            2 => Ok(()),
            _ => {
                locker.shutdown().await;
                Ok(())
            }
        }
    });
    timeout(LIMIT, run)
        .await
        .expect("in time")
        .expect("no error");
    assert!(runs.windows(2).all(|two| two[0] < two[1]), "{runs:?}");
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            LeaseEvent::Begun { tick, .. } => told.push(("begun", tick)),
            LeaseEvent::Completed { tick, .. } => told.push(("completed", tick)),
            _ => {}
        }
    }
    let expected = [
        ("begun", runs[0]),
        ("begun", runs[1]),
        ("completed", runs[1]),
        ("begun", runs[2]),
    ];
    assert_eq!(told, expected);
}

/// Catches missed ticks that nobody is told of, and a failed tick that counts for nobody.
#[tokio::test]
async fn missed_and_repeated_ticks_are_told_and_counted() {
    let server = RedisServer::start().await;
    let (first, second) = (connect(&server).await, connect(&server).await);
    let hour = 3_600_000;
    let hourly = |locker: &Locker| job(locker).every(millis(hour)).missed(Missed::All(3));
    let due = hourly(&first).due().await.expect("no error").expect("one");
    let done = turn(&hourly(&first), due - 24 * hour).await.done().await;
    done.expect("confirmed");
    let events = [&first, &second].map(Locker::events);
    let mut turns = [&first, &second].map(|locker| hourly(locker).turns());
    let fails = turns[1].try_next().await.expect("no error");
    let fails = fails.expect("the locker is not shut down");
    let next = tokio::spawn(async move {
        let turn = turns[0].try_next().await.expect("no error");
        (turn.expect("the locker is not shut down"), turns)
    });
    let waits = async || first.inspect("report").await.expect("an answer").waiting == 1;
    eventually(LIMIT, "the other runner waits", waits).await;
    fails.give_back().await.expect("confirmed");
    let (again, mut turns) = next.await.expect("no panic");
    assert_eq!((again.tick(), again.missed()), (due - 2 * hour, 21));
    again.done().await.expect("confirmed");
    // A runner that did not see the failed turn knows by its token.
    let fails = turns[0].try_next().await.expect("no error");
    drop(fails);
    let free = async || {
        first
            .inspect("report")
            .await
            .expect("an answer")
            .holder
            .is_none()
    };
    eventually(LIMIT, "it is given back", free).await;
    let last = hourly(&second).turns().try_next().await.expect("no error");
    let last = last.expect("the locker is not shut down");
    assert_eq!((last.tick(), last.missed()), (due - hour, 0));
    last.done().await.expect("confirmed");
    let counted = |locker: &Locker| {
        let stats = locker.stats();
        let ticks = (stats.ticks_completed, stats.ticks_repeated);
        (ticks, stats.ticks_missed)
    };
    assert_eq!(counted(&first), ((2, 1), 21));
    assert_eq!(counted(&second), ((1, 1), 21));
    for (locker, events) in [first, second].into_iter().zip(events) {
        locker.shutdown().await;
        let told = events.filter_map(async |event| match event {
            LeaseEvent::Missed { first, ticks, .. } => Some((first, ticks)),
            _ => None,
        });
        let told: Vec<_> = told.collect().await;
        assert_eq!(told, [(due - 23 * hour, 21)]);
    }
}

/// Catches a tick that counts as missed because it was not completed yet when the next one was claimed.
#[tokio::test]
async fn a_tick_in_progress_is_not_missed() {
    let server = RedisServer::start().await;
    let (first, second) = (connect(&server).await, connect(&server).await);
    let hour = 3_600_000;
    let hourly = |locker: &Locker| job(locker).every(millis(hour)).missed(Missed::Latest);
    let due = hourly(&first).due().await.expect("no error").expect("one");
    let done = turn(&hourly(&first), due - 2 * hour).await.done().await;
    done.expect("confirmed");
    let in_progress = turn(&hourly(&first), due - hour).await;
    let mut turns = hourly(&second).turns();
    let next = tokio::spawn(async move {
        let turn = turns.try_next().await.expect("no error");
        turn.expect("the locker is not shut down")
    });
    let waits = async || first.inspect("report").await.expect("an answer").waiting == 1;
    eventually(LIMIT, "the other runner waits", waits).await;
    in_progress.done().await.expect("confirmed");
    let next = next.await.expect("no panic");
    assert_eq!((next.tick(), next.missed()), (due, 0));
    next.done().await.expect("confirmed");
    let stats = second.stats();
    assert_eq!((stats.ticks_missed, stats.ticks_repeated), (0, 0));
}

#[tokio::test]
async fn a_turn_that_lasts_too_long_ends_and_its_tick_goes_on() {
    let server = RedisServer::start().await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let short = job(&one).ttl(millis(900)).at_most(millis(1_000));
    let first = turn(&short, 5).await;
    let lost = timeout(LIMIT, first.lease().lost()).await.expect("in time");
    assert_eq!(lost.reason, leasehold::LossReason::Overheld);
    assert!(first.done().await.is_err_and(|error| error.is_not_held()));
    turn(&job(&other), 5).await.done().await.expect("confirmed");
    let error = job(&one)
        .at_most(millis(1))
        .claim(6)
        .await
        .expect_err("below the TTL");
    assert_eq!(error.kind(), ErrorKind::Config);
}

/// Catches a runner that sleeps on until its next tick although the locker is shut down.
#[tokio::test]
async fn a_sleeping_runner_ends_with_its_locker() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let daily = job(&locker).every(Duration::from_secs(86_400));
    let run = tokio::spawn(async move { daily.run(async |_| Ok::<_, std::io::Error>(())).await });
    tokio::time::sleep(millis(200)).await;
    locker.shutdown().await;
    let ended = timeout(LIMIT, run).await.expect("in time");
    assert_eq!(ended.expect("no panic"), Ok(()));
}

/// What holds after the store lost its data: the latest tick may run once more, with a greater token.
#[tokio::test]
async fn after_a_flush_the_tick_may_run_again_with_a_greater_token() {
    let server = RedisServer::start().await;
    let locker = connect(&server).await;
    let first = turn(&job(&locker), 5).await;
    let token = first.token();
    first.done().await.expect("confirmed");
    leasehold_tests::Admin::connect(&server)
        .await
        .flushall()
        .await;
    assert!(turn(&job(&locker), 5).await.token() > token);
}

#[tokio::test]
async fn a_quorum_refuses_jobs() {
    let servers = [
        RedisServer::start().await,
        RedisServer::start().await,
        RedisServer::start().await,
    ];
    let urls = servers.each_ref().map(RedisServer::url);
    let locker = Locker::quorum(urls).await.expect("a quorum");
    let error = job(&locker)
        .try_claim(1)
        .await
        .expect_err("no jobs at a quorum");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
