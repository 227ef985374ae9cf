//! Commands that run once per tick of a job: `leasehold cron`, and `leasehold run` with `--once` or `--every`.

use std::time::Duration;

use futures::TryStreamExt;
use leasehold::{Claimed, Job, LeaseEvents, Locker, Missed, Turn, Turns};
use tokio::time::Instant;

use crate::args::{CronArgs, LeaseArgs, RunArgs};
use crate::child::{self, EventsPipe, Signals};
use crate::exit::{DONE_BEFORE, Failure, INTERNAL, NOT_ACQUIRED, NOT_FOUND, NOT_RUN};
use crate::run::{by, heard, leave, pipe, policy, unless_asked, with_time};
use crate::say::Voice;
use crate::times::{self, show};
use crate::work::{Ended, Held, Policy, Work};

pub(crate) fn main(args: &CronArgs, voice: &Voice) -> Result<u8, Failure> {
    let policy = policy(&args.lease, true)?;
    let missed = missed(&args.missed)?;
    let pipe = pipe()?;
    child::prepare()?;
    crate::block_on(cron(args, (policy, missed), pipe, voice))
}

async fn cron(
    args: &CronArgs,
    (policy, missed): (Policy, Missed),
    first: EventsPipe,
    voice: &Voice,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let locker = match unless_asked(args.store.connect(None, voice), &mut signals).await {
        Ok(locker) => locker?,
        Err(signal) => return Ok(by(signal)),
    };
    let job = job(&locker, &args.name, &args.lease)?.missed(missed);
    let mut turns = scheduled(job, &args.schedule, &args.time_zone)?.turns();
    let mut events = locker.events();
    let work = Work {
        command: &args.command,
        policy,
        voice,
    };
    let mut next = Some(first);
    let code = loop {
        let mut pipe = match next.take() {
            Some(pipe) => pipe,
            None => pipe()?,
        };
        let waiting = turn(&mut turns, args, &mut events, &mut pipe, voice);
        let turn = match unless_asked(waiting, &mut signals).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(failure)) => {
                leave(&locker).await;
                return Err(failure);
            }
            Err(signal) => break by(signal),
        };
        note_missed(voice, &turn);
        let tick = turn.tick();
        match work
            .run(Held::Turn(turn), &mut events, pipe, &mut signals)
            .await
        {
            Ok(Ended::Ran(ran, asked)) => {
                let code = ran.code();
                if asked.is_some() || matches!(code, NOT_RUN | NOT_FOUND) {
                    break code;
                }
                if code != 0 {
                    voice.note(&format!(
                        "tick {tick} is not completed: the command ended with {code}"
                    ));
                }
            }
            Ok(Ended::Lost(failure, None)) => voice.note(&failure.to_string()),
            Ok(Ended::Lost(failure, Some(_))) | Err(failure) => {
                leave(&locker).await;
                return Err(failure);
            }
        }
    };
    drop(turns);
    leave(&locker).await;
    Ok(code)
}

/// Waits for a turn with time left.
async fn turn(
    turns: &mut Turns,
    args: &CronArgs,
    events: &mut LeaseEvents,
    pipe: &mut EventsPipe,
    voice: &Voice,
) -> Result<Turn, Failure> {
    loop {
        let Some(turn) = heard(turns.try_next(), events, pipe, voice).await? else {
            return Err(Failure::new(INTERNAL, "the locker was shut down"));
        };
        match with_time(turn.lease(), args.lease.ttl).await {
            Ok(()) => return Ok(turn),
            Err(failure) => voice.note(&failure.to_string()),
        }
    }
}

/// Claims the tick of `leasehold run`. `Err` in the result is the exit code of a tick that was completed before.
pub(crate) async fn claim(
    locker: &Locker,
    args: &RunArgs,
    start: Instant,
    voice: &Voice,
) -> Result<Result<Turn, u8>, Failure> {
    let mut job = job(locker, &args.name, &args.lease)?;
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

fn job(locker: &Locker, name: &str, args: &LeaseArgs) -> Result<Job, Failure> {
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
fn scheduled(job: Job, schedule: &str, time_zone: &str) -> Result<Job, Failure> {
    match schedule.trim().strip_prefix("@every") {
        Some(period) => {
            let bad = |error| Failure::usage(format!("the period of {schedule:?}: {error}"));
            Ok(job.every(times::parse(period.trim()).map_err(bad)?))
        }
        None => Ok(job.cron(schedule, time_zone)),
    }
}

/// Reads `--missed`.
fn missed(text: &str) -> Result<Missed, Failure> {
    let all = text.strip_prefix("all:").and_then(|most| most.parse().ok());
    match (text, all) {
        ("skip", _) => Ok(Missed::Skip),
        ("latest", _) => Ok(Missed::Latest),
        (_, Some(most)) => Ok(Missed::All(most)),
        _ => {
            let what =
                format!("--missed is skip, latest or all:COUNT, such as all:10; got {text:?}");
            Err(Failure::usage(what))
        }
    }
}

fn note_missed(voice: &Voice, turn: &Turn) {
    let missed = turn.missed();
    if missed > 0 {
        let ticks = if missed == 1 {
            "tick was"
        } else {
            "ticks were"
        };
        voice.note(&format!(
            "{missed} {ticks} missed before tick {}",
            turn.tick()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_missed_ticks_is_read() {
        let read = |text| missed(text).ok();
        assert_eq!(read("skip"), Some(Missed::Skip));
        assert_eq!(read("latest"), Some(Missed::Latest));
        assert_eq!(read("all:10"), Some(Missed::All(10)));
        for text in ["", "all", "all:", "all:-1", "all:x", "none"] {
            let error = missed(text).expect_err(text).to_string();
            assert!(error.contains("all:10"), "{error}");
        }
    }
}
