//! Ticks of jobs, each completed in the transaction of its work.

use std::time::Duration;

use leasehold::fence::sql::TickRecord;
use leasehold::{Claimed, Error, ErrorKind, Job, Locker, Turn, fence};
use leasehold_guard_tests::sql::Db;
use leasehold_tests::{Child, RedisServer, unique_name};
use tokio::time::timeout;

use crate::checks::{Base, LIMIT};
use crate::stores::history;

/// The lease of a runner that is killed ends after this time.
const TTL: Duration = Duration::from_secs(1);

/// Runs every check in this file.
pub(crate) async fn all<DB: Db>(base: &Base<DB>) {
    a_tick_takes_effect_once(base).await;
    without_the_record_it_takes_effect_twice(base).await;
    a_rollback_leaves_no_record(base).await;
    runners_wait_for_each_other(base).await;
    a_former_runner_is_refused(base).await;
    it_needs_a_transaction_and_a_name(base).await;
    bare_statements_record_it_too(base).await;
    if let Some(url) = &base.url {
        for (how, times) in [("recorded", 1), ("unrecorded", 2)] {
            killed_between_the_commit_and_the_store(base, url, (how, times)).await;
        }
    }
}

fn job() -> (Locker, Job) {
    let locker = Locker::in_memory();
    let job = locker.job(unique_name("job")).expect("a valid name");
    (locker, job)
}

async fn turn(job: &Job, tick: u64) -> Turn {
    match job.claim(tick).await {
        Ok(Claimed::Turn(turn)) => turn,
        other => panic!("tick {tick}: {other:?}"),
    }
}

async fn effect<DB: Db>(connection: &mut DB::Connection, turn: &Turn) {
    let note = "INSERT INTO history (resource, token, value) VALUES (?, ?, ?)";
    let (token, tick) = (turn.token().get(), turn.tick());
    let args = [turn.name().as_str().into(), token.into(), tick.into()];
    let written = DB::run(connection, note, &args).await;
    written.expect("a write");
}

/// Does a tick's work, up to the commit.
async fn work<DB: Db>(base: &Base<DB>, turn: &Turn) -> Result<TickRecord, Error> {
    let mut tx = fence::sql::begin(&base.pool, turn.name().as_str(), turn.token()).await?;
    let record = turn.done_in(&mut *tx).await?;
    if record == TickRecord::Written {
        effect::<DB>(&mut tx, turn).await;
        tx.commit().await?;
    }
    Ok(record)
}

/// Returns the ticks whose work took effect.
async fn effects<DB: Db>(base: &Base<DB>, job: &Job) -> Vec<u64> {
    let history = history(&base.pool, job.name().as_str()).await;
    history.into_iter().map(|(_, tick)| tick).collect()
}

/// Catches a record that is missing, or that does not count for the next runner, or for a tick below it.
async fn a_tick_takes_effect_once<DB: Db>(base: &Base<DB>) {
    let (_locker, job) = job();
    for tick in [7, 9] {
        let first = turn(&job, tick).await;
        let record = work(base, &first).await.expect("the first work");
        assert_eq!(record, TickRecord::Written);
        // The runner fails after the commit: the store gives the same tick again.
        let token = first.token();
        drop(first);
        let second = turn(&job, tick).await;
        assert!(second.token() > token);
        let record = work(base, &second).await.expect("a greater token");
        assert_eq!(record, TickRecord::AlreadyCompleted);
        second.done().await.expect("it is held");
        let claimed = job.try_claim(tick).await.expect("an answer");
        assert!(matches!(claimed, Claimed::Completed(_)), "{claimed:?}");
    }
    assert_eq!(effects(base, &job).await, [7, 9]);
    // Such as after the store lost its data.
    let again = Locker::in_memory();
    let again = again.job(job.name().as_str()).expect("a valid name");
    for tick in [8, 9, (1 << 53) - 1] {
        let runner = turn(&again, tick).await;
        let record = work(base, &runner).await.expect("a greater token");
        let expected = if tick > 9 {
            TickRecord::Written
        } else {
            TickRecord::AlreadyCompleted
        };
        assert_eq!(record, expected, "{tick}");
    }
    assert_eq!(effects(base, &job).await, [7, 9, (1 << 53) - 1]);
}

/// The negative control: a guard that checks the token alone lets the next runner repeat the work.
async fn without_the_record_it_takes_effect_twice<DB: Db>(base: &Base<DB>) {
    let (_locker, job) = job();
    for _ in 0..2 {
        let runner = turn(&job, 7).await;
        let name = runner.name().as_str();
        let tx = fence::sql::begin(&base.pool, name, runner.token()).await;
        let mut tx = tx.expect("a greater token");
        effect::<DB>(&mut tx, &runner).await;
        tx.commit().await.expect("it commits");
    }
    assert_eq!(effects(base, &job).await, [7, 7]);
}

/// Catches a record outside of the transaction.
async fn a_rollback_leaves_no_record<DB: Db>(base: &Base<DB>) {
    let (_locker, job) = job();
    let first = turn(&job, 7).await;
    let name = job.name().as_str();
    let tx = fence::sql::begin(&base.pool, name, first.token()).await;
    let mut tx = tx.expect("the first token");
    let record = first.done_in(&mut *tx).await.expect("the first work");
    assert_eq!(record, TickRecord::Written);
    let record = first.done_in(&mut *tx).await.expect("the same work");
    assert_eq!(record, TickRecord::AlreadyCompleted, "it is recorded here");
    tx.rollback().await.expect("a rollback");
    let record = work(base, &first).await.expect("the same token");
    assert_eq!(record, TickRecord::Written);
    assert_eq!(effects(base, &job).await, [7]);
}

/// Catches two transactions of one tick that both see no record.
async fn runners_wait_for_each_other<DB: Db>(base: &Base<DB>) {
    for commits in [true, false] {
        let (locker, job) = job();
        let old = turn(&job, 7).await;
        let name = job.name().as_str();
        let tx = fence::sql::begin(&base.pool, name, old.token()).await;
        let mut tx = tx.expect("the first token");
        let record = old.done_in(&mut *tx).await.expect("the first work");
        assert_eq!(record, TickRecord::Written);
        locker.force_release(name).await.expect("it is held");
        let new = turn(&job, 7).await;
        let next = work(base, &new);
        tokio::pin!(next);
        let early = timeout(Duration::from_millis(150), &mut next).await;
        early.expect_err("the next runner waits for the open transaction");
        if commits {
            effect::<DB>(&mut tx, &old).await;
            tx.commit().await.expect("no greater token was accepted");
        } else {
            tx.rollback().await.expect("a rollback");
        }
        let record = timeout(LIMIT, next).await.expect("it goes on then");
        let expected = if commits {
            TickRecord::AlreadyCompleted
        } else {
            TickRecord::Written
        };
        assert_eq!(record.expect("a greater token"), expected);
        assert_eq!(effects(base, &job).await, [7]);
    }
}

/// Catches a record that is written under a stale token.
async fn a_former_runner_is_refused<DB: Db>(base: &Base<DB>) {
    let (locker, job) = job();
    let old = turn(&job, 7).await;
    let name = job.name().as_str();
    locker.force_release(name).await.expect("it is held");
    let new = turn(&job, 7).await;
    let tx = fence::sql::begin(&base.pool, name, new.token()).await;
    tx.expect("a greater token")
        .commit()
        .await
        .expect("it commits");
    let mut tx = base.pool.begin_with(DB::BEGIN).await.expect("it begins");
    let refused = old.done_in(&mut *tx).await;
    let error = refused.expect_err("a greater token was seen");
    let stale = error.stale_token().expect("a stale token");
    assert_eq!(
        (stale.offered, stale.highest, &*stale.resource),
        (old.token(), new.token(), name)
    );
    tx.rollback().await.expect("a rollback");
    let record = work(base, &new).await.expect("the newest token");
    assert_eq!(record, TickRecord::Written);
}

async fn it_needs_a_transaction_and_a_name<DB: Db>(base: &Base<DB>) {
    let (locker, job) = job();
    let runner = turn(&job, 7).await;
    let mut connection = base.pool.acquire().await.expect("a connection");
    let error = runner.done_in(&mut *connection).await;
    let error = error.expect_err("no transaction is open");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    drop(connection);
    let odd = locker.job("a\0b").expect("a valid name of a job");
    let runner = turn(&odd, 7).await;
    let mut tx = base.pool.begin_with(DB::BEGIN).await.expect("it begins");
    let error = runner.done_in(&mut *tx).await;
    let error = error.expect_err("a database does not store it");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}

/// Catches bare statements that count otherwise than `done_in`.
async fn bare_statements_record_it_too<DB: Db>(base: &Base<DB>) {
    let (_locker, job) = job();
    let runner = turn(&job, 7).await;
    let name = job.name().as_str();
    let complete = async |connection: &mut DB::Connection, tick: u64| {
        let args = [tick.into(), name.into(), tick.into()];
        let count = if DB::STATEMENTS.complete.contains('$') {
            2
        } else {
            3
        };
        let changed = DB::run(connection, DB::STATEMENTS.complete, &args[..count]).await;
        changed.expect("the statement runs")
    };
    let tx = fence::sql::begin(&base.pool, name, runner.token()).await;
    let mut tx = tx.expect("the first token");
    assert_eq!(complete(&mut tx, 7).await, 1);
    assert_eq!(complete(&mut tx, 7).await, 0);
    assert_eq!(complete(&mut tx, 6).await, 0);
    tx.commit().await.expect("it commits");
    let record = work(base, &runner).await.expect("the same token");
    assert_eq!(record, TickRecord::AlreadyCompleted);
}

/// Kills a runner after the commit of its work, before it has told the store. The next runner gets the same tick.
async fn killed_between_the_commit_and_the_store<DB: Db>(
    base: &Base<DB>,
    url: &str,
    (how, times): (&str, usize),
) {
    let server = RedisServer::start().await;
    let name = unique_name("killed");
    let program = env!("CARGO_BIN_EXE_sql_runner");
    let ttl = TTL.as_millis().to_string();
    let args = [&*server.url(), url, &name, "7", &ttl, how];
    let mut child = Child::spawn(program.as_ref(), args);
    child.wait_line("committed", LIMIT).await;
    child.kill9();
    let locker = Locker::connect(&server.url()).await.expect("it answers");
    let job = locker.job(&name).expect("a valid name").ttl(TTL);
    let next = timeout(LIMIT, turn(&job, 7)).await;
    let next = next.expect("the killed runner's lease ends");
    if how == "recorded" {
        let record = work(base, &next).await.expect("a greater token");
        assert_eq!(record, TickRecord::AlreadyCompleted);
    } else {
        let tx = fence::sql::begin(&base.pool, &name, next.token()).await;
        let mut tx = tx.expect("a greater token");
        effect::<DB>(&mut tx, &next).await;
        tx.commit().await.expect("it commits");
    }
    next.done().await.expect("it is held");
    assert_eq!(effects(base, &job).await, vec![7; times], "{how}");
    locker.shutdown().await;
}
