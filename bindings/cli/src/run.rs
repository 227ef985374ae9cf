//! `leasehold run`: a command under a lock.

use std::time::Duration;

use futures::{StreamExt, TryStream, TryStreamExt};
use leasehold::{Error, LeaseEvents, Lock, LockSet, Locker};
use nix::sys::signal::Signal;
use tokio::time::{Instant, timeout};

use crate::args::{LeaseArgs, OnLoss, RunArgs};
use crate::child::{self, EventsPipe, Signals};
use crate::exit::{BY_SIGNAL, Failure, INTERNAL};
use crate::held::Held;
use crate::job;
use crate::say::Voice;
use crate::shared::Shared;
use crate::times::show;
use crate::work::{Ended, Policy, Work, not_acquired};

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
    let target = Target::of(&locker, args)?;
    let mut events = match &target {
        Target::Lock(lock) => lock.events(),
        Target::Shared(shared) => shared.events(),
        Target::Job(_) | Target::Several(_) => locker.events(),
    };
    let acquiring = async {
        if let Target::Job(name) = &target {
            let claimed = job::claim(&locker, (args, name), start, voice).await?;
            return Ok(claimed.map(Held::Turn));
        }
        target.acquire(args, start).await.map(Ok)
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
    with_time: impl AsyncFn(&T) -> Result<(), Failure>,
    (events, pipe): (&mut LeaseEvents, &mut EventsPipe),
    voice: &Voice,
) -> Result<T, Failure> {
    loop {
        let Some(next) = heard(held.try_next(), events, pipe, voice).await? else {
            return Err(Failure::new(INTERNAL, "the locker was shut down"));
        };
        match with_time(&next).await {
            Ok(()) => return Ok(next),
            Err(failure) => voice.note(&failure.to_string()),
        }
    }
}

/// The names of a run, and how it holds them.
enum Target<'a> {
    Lock(Lock),
    Shared(Shared),
    Job(&'a str),
    Several(LockSet),
}

impl<'a> Target<'a> {
    fn of(locker: &Locker, args: &'a RunArgs) -> Result<Self, Failure> {
        let is_job = args.once.is_some() || args.every.is_some();
        let [name] = &args.names[..] else {
            if is_job || args.part.is_given() || args.lease.at_least.is_some() {
                let what = "several names are locks: --once, --every, --slots, --read, --write and --at-least go with \
                            one name only";
                return Err(Failure::usage(what));
            }
            return Ok(Self::Several(several(locker, args)?));
        };
        if is_job {
            return Ok(Self::Job(name));
        }
        Ok(match Shared::of(locker, name, &args.part, &args.lease)? {
            Some(shared) => Self::Shared(shared),
            None => Self::Lock(lock(locker, name, &args.lease)?),
        })
    }

    /// Acquires what is no job, with time left for the command.
    async fn acquire(&self, args: &RunArgs, start: Instant) -> Result<Held, Failure> {
        let (ttl, limit) = (args.lease.ttl, args.limit());
        let within = limit.map(|wait| wait.saturating_sub(start.elapsed()));
        let held = match (self, within) {
            (Self::Shared(shared), _) => shared.acquire(within).await?.map(Held::Permit),
            (Self::Several(locks), Some(left)) => locks
                .acquire_within(left)
                .await?
                .map(|bundle| Held::Bundle(bundle, args.names.clone())),
            (Self::Several(locks), None) => {
                Some(Held::Bundle(locks.acquire().await?, args.names.clone()))
            }
            (Self::Lock(lock), Some(left)) => lock.acquire_within(left).await?.map(Held::Lease),
            (Self::Lock(lock), None) => Some(Held::Lease(lock.acquire().await?)),
            (Self::Job(_), _) => None,
        };
        let held = held.ok_or_else(|| not_acquired(&args.names, limit))?;
        held.with_time(ttl).await?;
        Ok(held)
    }
}

/// Returns the locks of several names with the options of the command line.
fn several(locker: &Locker, args: &RunArgs) -> Result<LockSet, Failure> {
    let mut locks = locker.all(&args.names)?.ttl(args.lease.ttl);
    if let Some(owner) = &args.lease.owner {
        locks = locks.owner(owner);
    }
    if let Some(age) = args.lease.at_most {
        locks = locks.at_most(age);
    }
    Ok(locks)
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
