mod schedule;
mod turn;
mod turns;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use leasehold_engine::engine::{Backlog, CompletedInfo, Inspection, LockOptions, LockSpec, Wait};
use leasehold_engine::protocol::{Counter, LockKey};
use leasehold_engine::{Error, ErrorKind, Name, Owner, Tick};

use super::{Core, Lock};
pub use turn::Turn;
pub use turns::Turns;

use schedule::Schedule;

/// A piece of work that runs once per tick in a whole fleet. Making one does no I/O.
///
/// A tick is a number. With a schedule, [`every`](Self::every) or [`cron`](Self::cron), it is the time at which
/// the job is due, in milliseconds since 1970. The *server's* clock decides when that is; no machine's clock
/// matters. Without a schedule, [`claim`](Self::claim) takes ticks of your own, such as the number of a day.
///
/// A completed tick is given to nobody again while the store keeps its data. A tick that is not completed is
/// given to one runner at a time, each with a greater token. So each tick runs at least once while some
/// runner lives. In a SQL database it takes effect exactly once, by `Turn::done_in` of the features `postgres`,
/// `mysql` and `sqlite`.
///
/// The store remembers the greatest completed tick. Ticks below it count as completed. It remembers it for at
/// least two periods after the last turn, and for the locker's
/// [`token_retention`](super::Builder::token_retention). If the store loses its data, the latest tick may run
/// once more.
///
/// A name is used for a job or for a lock. The other use fails with [`WrongType`](crate::ErrorKind::WrongType).
/// A quorum cannot run jobs: claiming fails with [`Unsupported`](crate::ErrorKind::Unsupported).
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// let locker = leasehold::Locker::in_memory();
/// let job = locker.job("report")?.every(Duration::from_millis(50));
/// let mut runs = 0;
/// job.run(async |turn| {
///     println!("tick {} with token {}", turn.tick(), turn.token());
///     runs += 1;
///     if runs == 2 {
///         locker.shutdown().await;
///     }
///     Ok::<_, leasehold::Error>(())
/// })
/// .await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Job {
    core: Arc<Core>,
    name: Name,
    key: LockKey,
    options: LockOptions,
    schedule: Option<Schedule>,
    missed: Missed,
    /// Set if an option was not valid. Claiming returns it.
    error: Option<Error>,
}

/// Chooses which missed ticks are run: those that passed before a runner started, or while a run took longer than a
/// period.
///
/// A tick that was begun and not completed does not count as missed: its next runner gets it.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// let locker = leasehold::Locker::in_memory();
/// let job = locker.job("report")?.every(Duration::from_secs(3600)).missed(leasehold::Missed::Latest);
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Missed {
    /// A runner that starts waits for the next tick. Ticks that came due during a long run are skipped except
    /// the latest.
    #[default]
    Skip,
    /// A runner that starts runs the latest tick at once if it was missed. Earlier ones are skipped.
    Latest,
    /// All missed ticks run, the oldest first, up to this number of the latest; earlier ones are skipped.
    ///
    /// 1 to 10,000.
    All(u32),
}

/// The outcome of a claim of a tick: the turn, or why there is none.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::Claimed;
///
/// let locker = leasehold::Locker::in_memory();
/// let job = locker.job("report")?;
/// match job.claim(7).await? {
///     Claimed::Turn(turn) => turn.done().await?,
///     Claimed::Completed(done) => println!("{} completed it {:?} ago", done.by, done.ago),
///     _ => println!("another runner has it"),
/// }
/// assert!(matches!(job.claim(7).await?, Claimed::Completed(_)));
/// # Ok(()) }
/// ```
#[non_exhaustive]
#[derive(Debug)]
pub enum Claimed {
    /// The tick is this runner's.
    Turn(Turn),
    /// The tick was completed before, or a later one was: who completed the latest, and when.
    Completed(CompletedInfo),
    /// Another runner has the tick.
    InProgress,
}

/// The options of a job.
impl Job {
    pub(super) fn new(core: Arc<Core>, name: Name, key: LockKey) -> Self {
        let options = LockOptions::clone(&core.options);
        Self {
            core,
            name,
            key,
            options,
            schedule: None,
            missed: Missed::default(),
            error: None,
        }
    }

    /// Makes the job due at the multiples of a period since 1970, by the server's clock.
    ///
    /// 10 ms to a year (366 days), in whole milliseconds. If it is out of bounds, claiming fails with
    /// [`Config`](crate::ErrorKind::Config).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let job = locker.job("report")?.every(Duration::from_secs(900));
    /// let error = locker.job("report")?.every(Duration::ZERO).claim(1).await.unwrap_err();
    /// assert!(error.is_config());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn every(self, period: Duration) -> Self {
        self.scheduled(Schedule::every(period))
    }

    /// Makes the job due by a cron text in a time zone, for example `*/15 * * * *` in `Europe/Berlin`.
    ///
    /// Five fields, or six with seconds first. The time zone is a name of the IANA database, which the machine
    /// provides, or `UTC`. If one of them is not valid, or the text is never due, claiming fails with
    /// [`Config`](crate::ErrorKind::Config). The crate [`croner`](https://docs.rs/croner) reads the text.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::in_memory();
    /// let job = locker.job("report")?.cron("*/15 * * * *", "UTC");
    /// let error = locker.job("report")?.cron("61 * * * *", "UTC").claim(1).await.unwrap_err();
    /// assert!(error.is_config());
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "cron")]
    #[must_use]
    pub fn cron(self, text: impl AsRef<str>, time_zone: impl AsRef<str>) -> Self {
        self.scheduled(Schedule::cron(text.as_ref(), time_zone.as_ref()))
    }

    /// Sets what happens to missed ticks: see [`Missed`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use leasehold::Missed;
    /// use std::time::Duration;
    ///
    /// let job = locker.job("report")?.every(Duration::from_secs(900)).missed(Missed::All(10));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        if let Missed::All(most) = missed
            && !(1..=turns::MOST_COUNTED).contains(&most)
        {
            let rule = format!("must be from 1 to 10,000 ticks; got {most}");
            self.error.get_or_insert(Error::bad_option("missed", rule));
        }
        Self { missed, ..self }
    }

    /// Sets the time to live of a turn's lease: see [`Lock::ttl`]. After a crash the tick goes to the next
    /// runner when this time is over.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let job = locker.job("report")?.ttl(Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        let error = LockSpec::check_ttl(ttl).err();
        self.error = self.error.or(error);
        self
    }

    /// Limits how long a turn may last, however often its lease is renewed: see [`Lock::at_most`]. The same tick
    /// then goes to the next runner.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let job = locker.job("report")?.at_most(Duration::from_secs(600));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn at_most(mut self, age: Duration) -> Self {
        self.options.at_most = Some(age);
        self
    }

    /// Returns the name of the job.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// assert_eq!(locker.job("report")?.name().as_str(), "report");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &Name {
        &self.name
    }

    fn scheduled(mut self, schedule: Result<Schedule, Error>) -> Self {
        match schedule {
            Ok(schedule) => self.schedule = Some(schedule),
            Err(error) => self.error = self.error.or(Some(error)),
        }
        self
    }
}

/// Claims and runs.
impl Job {
    /// Runs the work once per tick, for as long as the program runs.
    ///
    /// Sleeps until a tick is due and claims it; while another runner has it, waits in line. If the work
    /// returns `Ok`, the tick is completed. If it fails, its error is traced as a warning, and the same tick
    /// goes to the next runner that waits for it; each runner tries a failing tick once. If the lease is lost,
    /// the work is dropped at its current await point, as by [`Lease::run`](super::Lease::run).
    ///
    /// Returns `Ok` once the locker is shut down, which gives back the present turn.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if an option is not valid or the job has no schedule, and any other
    /// error that a retry does not fix. While the store cannot be reached, it retries.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and gives the turn to the next runner.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let job = locker.job("report")?.every(Duration::from_millis(20));
    /// job.run(async |turn| {
    ///     println!("tick {}", turn.tick());
    ///     locker.shutdown().await; // ends the job
    ///     Ok::<_, std::io::Error>(())
    /// })
    /// .await?;
    /// # Ok(()) }
    /// ```
    pub async fn run<E: fmt::Display>(
        &self,
        mut work: impl AsyncFnMut(&Turn) -> Result<(), E>,
    ) -> Result<(), Error> {
        let mut turns = self.turns();
        while let Some(turn) = turns.try_next().await? {
            let (tick, token) = (turn.tick(), turn.token());
            let failed = match turn.lease().run(work(&turn)).await {
                Ok(Ok(())) => turn.done().await.err().map(|error| error.to_string()),
                Ok(Err(error)) => {
                    let failed = error.to_string();
                    let given_back = turn.give_back().await;
                    Some(given_back.err().map_or(failed, |error| error.to_string()))
                }
                Err(lost) => Some(lost.to_string()),
            };
            if let Some(error) = failed {
                let token = token.get();
                tracing::warn!(
                    target: "leasehold",
                    { name = %self.name, tick, token, "exception.message" = %error },
                    "a turn of the job ended without completing its tick"
                );
            }
        }
        Ok(())
    }

    /// Returns the turns that this runner gets, as a stream: see [`Turns`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use futures::TryStreamExt;
    /// use std::time::Duration;
    ///
    /// let mut turns = locker.job("report")?.every(Duration::from_millis(20)).turns();
    /// if let Some(turn) = turns.try_next().await? {
    ///     turn.done().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn turns(&self) -> Turns {
        Turns::new(self.clone())
    }

    /// Claims a tick. While another runner has it, waits in line until that runner completes it or fails.
    ///
    /// The tick is 1 to 2^53-1. With a schedule, a tick that is not due yet by the server's clock is refused.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`], [`Config`](crate::ErrorKind::Config) for a tick out of bounds or
    /// not due yet, [`WrongType`](crate::ErrorKind::WrongType) if the name is a lock's, and
    /// [`Unsupported`](crate::ErrorKind::Unsupported) at a quorum.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, as with [`Lock::acquire`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use leasehold::Claimed;
    ///
    /// if let Claimed::Turn(turn) = locker.job("import")?.claim(7).await? {
    ///     turn.done().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn claim(&self, tick: u64) -> Result<Claimed, Error> {
        loop {
            match self.ask_due(tick, Wait::Forever).await? {
                // The store forgot the tick between its two answers.
                Claimed::InProgress => {}
                claimed => return Ok(claimed),
            }
        }
    }

    /// Claims a tick as [`claim`](Self::claim) does, without waiting for another runner.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use leasehold::Claimed;
    ///
    /// let job = locker.job("import")?;
    /// let turn = job.claim(7).await?;
    /// assert!(matches!(job.try_claim(7).await?, Claimed::InProgress));
    /// # drop(turn);
    /// # Ok(()) }
    /// ```
    pub async fn try_claim(&self, tick: u64) -> Result<Claimed, Error> {
        self.ask_due(tick, Wait::Never).await
    }

    /// Claims a tick as [`claim`](Self::claim) does, and waits for another runner for at most this time.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use leasehold::Claimed;
    /// use std::time::Duration;
    ///
    /// let job = locker.job("import")?;
    /// let turn = job.claim(7).await?;
    /// let other = job.claim_within(7, Duration::from_millis(50)).await?;
    /// assert!(matches!(other, Claimed::InProgress));
    /// # drop(turn);
    /// # Ok(()) }
    /// ```
    pub async fn claim_within(&self, tick: u64, time: Duration) -> Result<Claimed, Error> {
        if time.is_zero() {
            return self.try_claim(tick).await;
        }
        let until = self.core.driver.now() + time;
        self.ask_due(tick, Wait::Until(until)).await
    }

    /// Returns the latest tick of the schedule that is due by the server's clock; `None` if there is none yet.
    ///
    /// For programs that something else starts at about the right times, such as the machine's own cron: each
    /// claims the tick that is due. That machine's clock may be ahead of the server's. So if the next tick is due
    /// within a tenth of the time between the two, at most a minute, this waits for it and returns that one.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let job = locker.job("report")?.every(Duration::from_secs(900));
    /// let tick = job.due().await?.expect("900 s after 1970 have passed");
    /// assert_eq!(tick % 900_000, 0);
    /// # Ok(()) }
    /// ```
    pub async fn due(&self) -> Result<Option<u64>, Error> {
        let schedule = self.schedule()?;
        loop {
            let now = self.inspect().await?.server_time;
            let latest = schedule.latest(now);
            let wait = schedule.soon(now, latest);
            if wait.is_zero() {
                return Ok(latest);
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn schedule(&self) -> Result<&Schedule, Error> {
        if let Some(error) = &self.error {
            return Err(error.about(&self.name));
        }
        let message =
            "the job has no schedule; give it every(…) or cron(…), or claim ticks of your own";
        let none = || Error::new(ErrorKind::Config, message).about(&self.name);
        self.schedule.as_ref().ok_or_else(none)
    }

    async fn inspect(&self) -> Result<Inspection, Error> {
        let seen = self.core.driver.inspect(self.key.clone()).await;
        seen.map_err(|error| error.about(&self.name))
    }

    /// Claims a tick that the program chose. A schedule must have it due.
    async fn ask_due(&self, tick: u64, wait: Wait) -> Result<Claimed, Error> {
        if self.schedule.is_some() && tick > self.inspect().await?.server_time {
            let message = format!("the tick {tick} is not due yet by the server's clock");
            return Err(Error::new(ErrorKind::Config, message).about(&self.name));
        }
        self.ask((tick, None), wait).await
    }

    async fn ask(
        &self,
        (tick, backlog): (u64, Option<Backlog>),
        wait: Wait,
    ) -> Result<Claimed, Error> {
        if let Some(error) = &self.error {
            return Err(error.about(&self.name));
        }
        let lock = self.lock(tick, backlog)?;
        if let Some(lease) = lock.ask(wait).await? {
            return Ok(Claimed::Turn(Turn::new(lease, tick)));
        }
        let job = self.inspect().await?.job;
        let done = job.and_then(|job| job.completed);
        Ok(match done.filter(|done| done.tick >= tick) {
            Some(done) => Claimed::Completed(done),
            None => Claimed::InProgress,
        })
    }

    /// Returns the lock on one tick.
    fn lock(&self, tick: u64, backlog: Option<Backlog>) -> Result<Lock, Error> {
        let mut options = self.options.clone();
        options.backlog = backlog;
        options.owner = Owner::runner(options.owner.label(), Tick::new(tick)?)?;
        if let (Counter::ClockFloor { retention }, Some(schedule)) =
            (&mut options.counter, &self.schedule)
        {
            *retention = schedule.retention().max(*retention);
        }
        let (name, key) = (self.name.clone(), self.key.clone());
        let spec = LockSpec {
            name,
            key,
            options: Arc::new(options),
        };
        Ok(Lock::of(self.core.clone(), Arc::new(spec), None))
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Job");
        debug.field("name", &self.name);
        match &self.error {
            None => debug
                .field("schedule", &self.schedule)
                .field("missed", &self.missed),
            Some(error) => debug.field("error", error),
        };
        debug.finish_non_exhaustive()
    }
}
