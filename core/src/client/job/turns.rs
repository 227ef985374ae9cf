use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::stream::{BoxStream, StreamExt, unfold};
use leasehold_engine::engine::{Backlog, Inspection, Wait};
use leasehold_engine::{Error, ErrorKind, limits};
use tokio::time::timeout;

use super::schedule::Schedule;
use super::{Claimed, Job, Missed, Turn};
use crate::client::persist::{PAUSE, trace};
use crate::client::{LeaseEvents, Lock};
use crate::rt;

/// The longest sleep. After it the runner asks for the server's clock again, which may have been set.
const LONGEST_SLEEP: Duration = limits::time("longestSleep");

/// The most missed ticks that are counted, of a cron text, or run.
pub(super) const MOST_COUNTED: u32 = limits::count("missedTicks");

/// The most by which a runner wakes late, so that the same one does not win every tick.
const MOST_SPREAD: Duration = limits::time("longestSpread");

/// A stream of the turns that this runner of a [`Job`] gets.
///
/// It sleeps until the next tick is due, by the server's clock, and claims it. While another runner has the tick,
/// it waits in line, and gets the tick if that runner fails. Each item is one [`Turn`]. Complete it with
/// [`Turn::done`]; a turn that is dropped goes to the next runner, and this one goes on to the next tick.
///
/// While the store cannot be reached it retries. It ends when the locker is shut down, and after an error that
/// a retry does not fix.
///
/// Nothing happens unless it is polled.
///
/// # Cancel safety
///
/// Waiting for the next turn is cancel-safe: the place in line is kept.
///
/// # Example
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// use futures::TryStreamExt;
///
/// let locker = leasehold::Locker::in_memory();
/// let job = locker.job("report")?.every(Duration::from_millis(20));
/// let mut turns = job.turns();
/// for _ in 0..2 {
///     let turn = turns.try_next().await?.expect("the locker was not shut down");
///     turn.done().await?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "streams do nothing unless they are polled"]
pub struct Turns(BoxStream<'static, Result<Turn, Error>>);

impl Turns {
    pub(super) fn new(job: Job) -> Self {
        let runner = Runner {
            job,
            after: None,
            last: None,
            shutdown: None,
            is_over: false,
        };
        Self(unfold(runner, Runner::turn).boxed())
    }
}

impl Stream for Turns {
    type Item = Result<Turn, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

/// One process that runs the ticks of a job, among others.
struct Runner {
    job: Job,
    /// The tick up to which this runner has nothing to do; `None` until it has seen the job.
    after: Option<u64>,
    /// The last turn's tick, and a flag that is set if it ended unfinished.
    last: Option<(u64, Arc<AtomicBool>)>,
    /// A handle, and its events, which end when the locker is shut down.
    shutdown: Option<(LeaseEvents, Lock)>,
    is_over: bool,
}

impl Runner {
    async fn turn(mut self) -> Option<(Result<Turn, Error>, Self)> {
        if self.is_over {
            return None;
        }
        loop {
            match self.next().await {
                Ok(turn) => {
                    self.last = Some((turn.tick(), turn.unfinished()));
                    return Some((Ok(turn), self));
                }
                Err(error) if error.is_transient() => {
                    trace("cannot claim a tick of the job", &error);
                    if self.sleep(PAUSE).await.is_err() {
                        return None;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Shutdown => return None,
                Err(error) => {
                    self.is_over = true;
                    return Some((Err(error), self));
                }
            }
        }
    }

    /// Waits for this runner's next turn.
    async fn next(&mut self) -> Result<Turn, Error> {
        let schedule = self.job.schedule()?.clone();
        loop {
            let seen = self.job.inspect().await?;
            let job = seen.job.as_ref();
            let completed = job.and_then(|job| job.completed.as_ref());
            let completed = completed.map(|done| done.tick);
            let after = self.after(&schedule, &seen, completed);
            let Some(next) = schedule.next(after) else {
                let message = "the job is never due again";
                return Err(Error::new(ErrorKind::Config, message).about(self.job.name()));
            };
            if next > seen.server_time {
                let until = Duration::from_millis(next - seen.server_time);
                self.sleep((until + Self::spread(until)?).min(LONGEST_SLEEP))
                    .await?;
                continue;
            }
            let tick = self.job.missed.choose(&schedule, (next, seen.server_time));
            let backlog = backlog(&schedule, &seen, (completed.unwrap_or(after), tick));
            match self.job.ask((tick, Some(backlog)), Wait::Forever).await? {
                Claimed::Turn(turn) => {
                    self.after = Some(tick);
                    return Ok(turn.of_schedule(backlog.missed));
                }
                Claimed::Completed(done) => self.after = Some(done.tick.max(tick)),
                Claimed::InProgress => {}
            }
        }
    }

    /// Returns the tick up to which this runner has nothing to do.
    fn after(&mut self, schedule: &Schedule, seen: &Inspection, completed: Option<u64>) -> u64 {
        let job = seen.job.as_ref();
        let mut after = self.after.unwrap_or_else(|| {
            let latest = schedule.latest(seen.server_time).unwrap_or(0);
            let is_unfinished = job.and_then(|job| job.begun) == Some(latest);
            self.job.missed.start((latest, is_unfinished), completed)
        });
        if let Some((tick, unfinished)) = &self.last
            && unfinished.swap(false, Ordering::AcqRel)
            && after == *tick
        {
            after = tick - 1;
        }
        after = after.max(completed.unwrap_or(0));
        after = self.job.missed.bound(schedule, after, seen.server_time);
        self.after = Some(after);
        after
    }

    /// Sleeps, except that a shutdown of the locker ends it.
    async fn sleep(&mut self, time: Duration) -> Result<(), Error> {
        let open = if let Some(open) = self.shutdown.take() {
            open
        } else {
            // The events of a handle that acquires nothing end with the locker.
            let handle = self.job.lock(1, None)?;
            (handle.events(), handle)
        };
        let (events, _) = self.shutdown.insert(open);
        match timeout(time, events.count()).await {
            Ok(_) => Err(Error::new(ErrorKind::Shutdown, "the locker was shut down")),
            Err(_) => Ok(()),
        }
    }

    /// Returns by how much this runner wakes late: up to a twentieth of its sleep.
    fn spread(sleep: Duration) -> Result<Duration, Error> {
        let most = (sleep / 20).min(MOST_SPREAD).as_micros();
        let micros = rt::random_bits()? % (most + 1);
        Ok(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
    }
}

/// Returns what is known of the ticks after `from` and up to `tick`, which is about to be claimed.
fn backlog(schedule: &Schedule, seen: &Inspection, (from, tick): (u64, u64)) -> Backlog {
    let job = seen.job.as_ref();
    let begun = job.and_then(|job| job.begun);
    // An earlier tick whose turn is in progress is about to be completed: nobody has missed it.
    let earlier = begun.filter(|begun| seen.holder.is_some() && (from..tick).contains(begun));
    let from = earlier.unwrap_or(from);
    let missed = schedule.between(from, tick, MOST_COUNTED);
    let is_begun = begun == Some(tick);
    // A turn after the last completed one had this tick if there is no other that it can have had.
    let completed = job.and_then(|job| job.completed.as_ref());
    let is_later = completed.is_some_and(|done| seen.last_token > Some(done.token));
    Backlog {
        first: schedule.next(from).unwrap_or(tick),
        missed,
        again: is_begun || (missed == 0 && is_later && earlier.is_none()),
    }
}

impl Missed {
    /// Returns the tick up to which a runner that starts has nothing to do. `latest` is the last tick that is
    /// due, and `is_unfinished` is true if a runner began it and has not completed it.
    fn start(self, (latest, is_unfinished): (u64, bool), completed: Option<u64>) -> u64 {
        let before = latest.saturating_sub(1);
        match (self, completed) {
            (Self::Latest, Some(_)) => before,
            (Self::All(_), Some(completed)) => completed,
            _ if is_unfinished => before,
            _ => latest,
        }
    }

    /// Returns the tick up to which a runner has nothing to do, so that no more ticks are left than may run.
    fn bound(self, schedule: &Schedule, after: u64, now: u64) -> u64 {
        let Self::All(most) = self else {
            return after;
        };
        if schedule.between(after, now + 1, most + 1) <= u64::from(most) {
            return after;
        }
        let earlier = |until: &u64| schedule.latest(*until).map(|tick| tick.saturating_sub(1));
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let bound = std::iter::successors(Some(now), earlier).nth(most);
        bound.map_or(after, |bound| bound.max(after))
    }

    /// Returns the tick to claim, if `next` is the first that this runner has to do with and due at `now`.
    fn choose(self, schedule: &Schedule, (next, now): (u64, u64)) -> u64 {
        match self {
            Self::Skip | Self::Latest => schedule.latest(now).unwrap_or(next).max(next),
            Self::All(_) => next,
        }
    }
}
