//! `leasehold run`: a command under a lock.

use std::time::Duration;

use futures::{StreamExt, TryStream, TryStreamExt};
use leasehold::{Error, Lease, LeaseEvents, Lock, Locker};
use nix::sys::signal::Signal;
use tokio::time::{Instant, timeout};

use crate::args::{LeaseArgs, OnLoss, RunArgs};
use crate::child::{self, EventsPipe, Signals};
use crate::exit::{BY_SIGNAL, Failure, INTERNAL};
use crate::job;
use crate::say::Voice;
use crate::shared::Shared;
use crate::times::show;
use crate::work::{Ended, Held, Policy, Work, not_acquired, with_time};

/// The shortest time to live. Starting and ending processes needs this much time.
const LEAST_TTL: Duration = Duration::from_secs(1);
const MOST_DEFAULT_GRACE: Duration = Duration::from_secs(10);
/// How long giving up the place in line may take, if the store can be reached.
const TO_LEAVE: Duration = Duration::from_secs(1);

pub(crate) fn main(args: &RunArgs, voice: &Voice) -> Result<u8, Failure> {
    let policy = policy(&args.lease, args.on_loss == OnLoss::Stop)?;
    let pipe = pipe()?;
    child::prepare()?;
    crate::block_on(run(args, policy, pipe, voice))
}

/// Opens the pipe of `LEASEHOLD_EVENTS_FD`.
pub(crate) fn pipe() -> Result<EventsPipe, Failure> {
    EventsPipe::new().map_err(|error| Failure::new(INTERNAL, format!("making a pipe: {error}")))
}

/// Reads and checks the policy. With a longer grace period the command would be ended before a renewal is due.
pub(crate) fn policy(args: &LeaseArgs, stop: bool) -> Result<Policy, Failure> {
    let ttl = args.ttl;
    if ttl < LEAST_TTL {
        let what = format!(
            "--ttl must be at least {}; got {}",
            show(LEAST_TTL),
            show(ttl)
        );
        return Err(Failure::usage(what));
    }
    let grace = args.grace.unwrap_or((ttl / 6).min(MOST_DEFAULT_GRACE));
    if grace > ttl / 3 {
        let what = format!(
            "--grace may be at most a third of --ttl, here {}; use a --ttl of {} or more",
            show(ttl / 3),
            show(grace * 3),
        );
        return Err(Failure::usage(what));
    }
    check_ages(args)?;
    Ok(Policy {
        grace,
        margin: Policy::margin(ttl),
        stop,
    })
}

fn check_ages(args: &LeaseArgs) -> Result<(), Failure> {
    let LeaseArgs {
        ttl,
        at_most,
        at_least,
        ..
    } = *args;
    let what = match (at_most, at_least) {
        (Some(most), _) if most < ttl => {
            let (least, most) = (show(ttl), show(most));
            format!("--at-most must be at least --ttl, here {least}; got {most}")
        }
        (Some(most), Some(least)) if least > most => {
            let (least, most) = (show(least), show(most));
            format!("--at-least must not exceed --at-most, here {most}; got {least}")
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(what))
}

/// Returns the lock with the options of the command line.
pub(crate) fn lock(locker: &Locker, name: &str, args: &LeaseArgs) -> Result<Lock, Failure> {
    let mut lock = locker.lock(name)?.ttl(args.ttl);
    if let Some(owner) = &args.owner {
        lock = lock.owner(owner);
    }
    if let Some(age) = args.at_most {
        lock = lock.at_most(age);
    }
    if let Some(age) = args.at_least {
        lock = lock.at_least(age);
    }
    Ok(lock)
}

async fn run(
    args: &RunArgs,
    policy: Policy,
    mut pipe: EventsPipe,
    voice: &Voice,
) -> Result<u8, Failure> {
    let start = Instant::now();
    let mut signals = Signals::listen()?;
    // With `--no-wait` the store still has its usual time to reply.
    let within = args.limit().filter(|limit| !limit.is_zero());
    let connecting = args.store.connect(within, voice);
    let locker = match unless_asked(connecting, &mut signals).await {
        Ok(locker) => locker?,
        Err(signal) => return Ok(by(signal)),
    };
    let lock = lock(&locker, &args.name, &args.lease)?;
    let is_job = args.once.is_some() || args.every.is_some();
    let shared = Shared::of(&locker, args)?;
    let mut events = match &shared {
        Some(shared) => shared.events(),
        None if is_job => locker.events(),
        None => lock.events(),
    };
    let acquiring = async {
        if is_job {
            let claimed = job::claim(&locker, args, start, voice).await?;
            return Ok(claimed.map(Held::Turn));
        }
        Ok(Ok(match &shared {
            Some(shared) => Held::Permit(shared.acquire(args, start).await?),
            None => Held::Lease(acquire(&lock, args, start).await?),
        }))
    };
    let acquiring = heard(acquiring, &mut events, &mut pipe, voice);
    let held = match unless_asked(acquiring, &mut signals).await {
        Ok(Ok(Ok(held))) => held,
        Ok(Ok(Err(code))) => {
            leave(&locker).await;
            return Ok(code);
        }
        Ok(Err(failure)) => {
            leave(&locker).await;
            return Err(failure);
        }
        Err(signal) => {
            leave(&locker).await;
            return Ok(by(signal));
        }
    };
    let work = Work {
        command: &args.command,
        policy,
        voice,
    };
    match work.run(held, &mut events, pipe, &mut signals).await {
        Ok(Ended::Ran(ran, _)) => Ok(ran.code()),
        Ok(Ended::Lost(failure, _)) => Err(failure),
        Err(failure) => {
            // The command was not started, so the lock is given back.
            leave(&locker).await;
            Err(failure)
        }
    }
}

/// Releases the lock, or leaves the line, if the store can be reached.
pub(crate) async fn leave(locker: &Locker) {
    let _ = timeout(TO_LEAVE, locker.shutdown()).await;
}

/// Returns the exit code of a process that this signal ended.
pub(crate) fn by(signal: Signal) -> u8 {
    child::Ran::Killed(signal).code().max(BY_SIGNAL)
}

/// Returns the output of the work, or the signal that asks this process to end first.
pub(crate) async fn unless_asked<T>(
    work: impl Future<Output = T>,
    signals: &mut Signals,
) -> Result<T, Signal> {
    tokio::select! {
        biased;
        signal = signals.next_end() => Err(signal),
        output = work => Ok(output),
    }
}

/// Returns the output of the work, and shows events meanwhile.
pub(crate) async fn heard<T>(
    work: impl Future<Output = T>,
    events: &mut LeaseEvents,
    pipe: &mut EventsPipe,
    voice: &Voice,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            output = &mut work => return output,
            Some(event) = events.next() => {
                pipe.write(&event);
                voice.event(&event);
            }
        }
    }
}

/// Waits for the next tenure or turn with time left, and shows events meanwhile.
pub(crate) async fn next_with_time<T>(
    held: &mut (impl TryStream<Ok = T, Error = Error> + Unpin),
    lease: impl Fn(&T) -> &Lease,
    ttl: Duration,
    (events, pipe): (&mut LeaseEvents, &mut EventsPipe),
    voice: &Voice,
) -> Result<T, Failure> {
    loop {
        let Some(next) = heard(held.try_next(), events, pipe, voice).await? else {
            return Err(Failure::new(INTERNAL, "the locker was shut down"));
        };
        match with_time(lease(&next), ttl).await {
            Ok(()) => return Ok(next),
            Err(failure) => voice.note(&failure.to_string()),
        }
    }
}

async fn acquire(lock: &Lock, args: &RunArgs, start: Instant) -> Result<Lease, Failure> {
    let acquired = match args.limit() {
        Some(Duration::ZERO) => lock.try_acquire().await?,
        Some(wait) => {
            let left = wait.saturating_sub(start.elapsed());
            lock.acquire_within(left).await?
        }
        None => Some(lock.acquire().await?),
    };
    let lease = acquired.ok_or_else(|| not_acquired(lock.name().as_str(), args.limit()))?;
    with_time(&lease, args.lease.ttl).await?;
    Ok(lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(ttl: u64, grace: Option<u64>) -> LeaseArgs {
        LeaseArgs {
            ttl: Duration::from_millis(ttl),
            owner: None,
            at_most: None,
            at_least: None,
            grace: grace.map(Duration::from_millis),
        }
    }

    #[test]
    fn the_grace_leaves_time_for_renewals() {
        let grace = |args| policy(&args, true).map(|policy| policy.grace.as_millis());
        assert_eq!(grace(args(30_000, None)).ok(), Some(5_000));
        assert_eq!(grace(args(600_000, None)).ok(), Some(10_000));
        assert_eq!(grace(args(30_000, Some(10_000))).ok(), Some(10_000));
        let error = grace(args(30_000, Some(10_001))).expect_err("more than a third");
        assert!(error.to_string().contains("--ttl of 30s"), "{error}");
        assert!(grace(args(999, None)).is_err());
    }
}
