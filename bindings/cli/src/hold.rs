//! `leasehold hold`: leader election for scripts, and keepers of a part of a shared name.

use futures::{StreamExt, TryStreamExt};
use leasehold::LeaseEvents;
use nix::sys::signal::Signal;
use tokio::time::sleep;

use crate::args::HoldArgs;
use crate::child::{self, EventsPipe, Ran, Signals};
use crate::exit::{Failure, NOT_FOUND, NOT_RUN};
use crate::held::Held;
use crate::run::{by, leave, lock, next_with_time, pipe, policy, unless_asked};
use crate::say::Voice;
use crate::shared::Shared;
use crate::work::{Ended, Policy, Work};

pub(crate) fn main(args: &HoldArgs, voice: &Voice) -> Result<u8, Failure> {
    let policy = policy(&args.lease, true)?;
    let pipe = pipe()?;
    child::prepare()?;
    crate::block_on(hold(args, policy, pipe, voice))
}

async fn hold(
    args: &HoldArgs,
    policy: Policy,
    first: EventsPipe,
    voice: &Voice,
) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let locker = match unless_asked(args.store.connect(None, voice), &mut signals).await {
        Ok(locker) => locker?,
        Err(signal) => return Ok(by(signal)),
    };
    let shared = Shared::of(&locker, &args.name, &args.part, &args.lease)?;
    let (mut tenures, mut events) = if let Some(shared) = shared {
        (shared.hold()?.map_ok(Held::Permit).boxed(), shared.events())
    } else {
        let lock = lock(&locker, &args.name, &args.lease)?;
        (lock.hold().map_ok(Held::Lease).boxed(), lock.events())
    };
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
        let waiting = next_with_time(
            &mut tenures,
            async |held: &Held| held.with_time(args.lease.ttl).await,
            (&mut events, &mut pipe),
            voice,
        );
        let held = match unless_asked(waiting, &mut signals).await {
            Ok(held) => held?,
            Err(signal) => break by(signal),
        };
        match turn(&work, held, &mut events, pipe, &mut signals).await {
            Ok(Some(code)) => break code,
            Ok(None) => {}
            Err(failure) => {
                leave(&locker).await;
                return Err(failure);
            }
        }
        if let Err(signal) = unless_asked(sleep(args.pause), &mut signals).await {
            break by(signal);
        }
    };
    drop(tenures);
    leave(&locker).await;
    Ok(code)
}

/// Runs one turn as the leader. Returns the exit code if it was the last one.
async fn turn(
    work: &Work<'_>,
    held: Held,
    events: &mut LeaseEvents,
    pipe: EventsPipe,
    signals: &mut Signals,
) -> Result<Option<u8>, Failure> {
    work.voice.note(&held.told());
    match work.run(held, events, pipe, signals).await? {
        Ended::Ran(ran, asked) if asked.is_some() || is_last(ran) => Ok(Some(ran.code())),
        Ended::Ran(ran, _) => {
            work.voice
                .note(&format!("the command ended with {}", ran.code()));
            Ok(None)
        }
        Ended::Lost(failure, Some(_)) => Err(failure),
        Ended::Lost(failure, None) => {
            work.voice
                .note(&format!("{failure}: waiting in line again"));
            Ok(None)
        }
    }
}

/// Returns true if this program should end with the command. The keys of the terminal were meant for both, and a command
/// that cannot be run now cannot be run later.
fn is_last(ran: Ran) -> bool {
    matches!(
        ran,
        Ran::Killed(Signal::SIGINT | Signal::SIGQUIT) | Ran::Exited(NOT_RUN | NOT_FOUND)
    )
}
