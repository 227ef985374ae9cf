//! The jobs of the command line, and the tick of `leasehold run` with `--once` or `--every`.

use std::time::Duration;

use leasehold::{Claimed, Job, Locker, Turn};
use tokio::time::Instant;

use crate::args::{LeaseArgs, RunArgs};
use crate::exit::{DONE_BEFORE, Failure, NOT_ACQUIRED};
use crate::held::with_time;
use crate::say::Voice;
use crate::times::{self, show};

/// Claims the tick of `leasehold run`. `Err` in the result is the exit code of a tick that was completed before.
pub(crate) async fn claim(
    locker: &Locker,
    (args, name): (&RunArgs, &str),
    start: Instant,
    voice: &Voice,
) -> Result<Result<Turn, u8>, Failure> {
    let mut job = job(locker, name, &args.lease)?;
    let tick = match (&args.once, &args.every) {
        (Some(tick), _) => *tick,
        (None, every) => {
            job = job.every(every.unwrap_or_default());
            let none = || Failure::new(NOT_ACQUIRED, "no tick is due yet");
            job.due().await?.ok_or_else(none)?
        }
    };
    let claimed = match args.limit() {
        Some(Duration::ZERO) => job.try_claim(tick).await?,
        Some(wait) => {
            let left = wait.saturating_sub(start.elapsed());
            job.claim_within(tick, left).await?
        }
        None => job.claim(tick).await?,
    };
    let name = job.name();
    match claimed {
        Claimed::Turn(turn) => {
            with_time(turn.lease(), args.lease.ttl).await?;
            Ok(Ok(turn))
        }
        Claimed::Completed(done) => {
            voice.aside(&format!(
                "tick {tick} of {name} is completed: {} ran tick {} and ended {} ago",
                done.by,
                done.tick,
                show(done.ago)
            ));
            Ok(Err(DONE_BEFORE))
        }
        _ => {
            let what = format!("tick {tick} of {name} was not given: another runner has it");
            Err(Failure::new(NOT_ACQUIRED, what)
                .advise("wait longer (--wait), or see the runner with leasehold inspect"))
        }
    }
}

/// Returns the job with the options of the command line.
pub(crate) fn job(locker: &Locker, name: &str, args: &LeaseArgs) -> Result<Job, Failure> {
    if args.owner.is_some() {
        let what = "--owner does not go with a job, whose ticks are not taken over";
        return Err(Failure::usage(what));
    }
    if args.at_least.is_some() {
        let what = "--at-least does not go with a job: a completed tick is not run again anyway";
        return Err(Failure::usage(what));
    }
    let job = locker.job(name)?.ttl(args.ttl);
    Ok(match args.at_most {
        Some(age) => job.at_most(age),
        None => job,
    })
}

/// Adds the schedule of the command line: a cron text, or `@every` and a time.
pub(crate) fn scheduled(job: Job, schedule: &str, time_zone: &str) -> Result<Job, Failure> {
    match schedule.trim().strip_prefix("@every") {
        Some(period) => {
            let bad = |error| Failure::usage(format!("the period of {schedule:?}: {error}"));
            Ok(job.every(times::parse(period.trim()).map_err(bad)?))
        }
        None => Ok(job.cron(schedule, time_zone)),
    }
}
