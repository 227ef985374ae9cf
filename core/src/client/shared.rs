mod options;
mod permit;
mod permits;

use std::fmt;
use std::time::Duration;

use leasehold_engine::engine::Wait;
use leasehold_engine::{Error, Name, Share as Part};

use super::{LeaseEvents, Lock, Tenures};

pub use permit::Permit;
pub use permits::Permits;

/// A handle on a name that several holders share, with options. Making one does no I/O.
///
/// [`Locker::semaphore`](super::Locker::semaphore) makes one whose permits have slots, and
/// [`Locker::quota`](super::Locker::quota) one for large amounts, without slots.
///
/// There is one line for all callers. A caller that asks for much is not overtaken by those that ask for little. A
/// crash frees a permit after its time to live. Nothing counts permits: the living holders are the count.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// use std::time::Duration;
///
/// let locker = leasehold::Locker::in_memory();
/// let licenses = locker.semaphore("licenses", 3)?.ttl(Duration::from_secs(10));
/// match licenses.acquire_within(Duration::from_secs(3)).await? {
///     Some(permit) => println!("license {:?}, token {}", permit.slot(), permit.token()),
///     None => println!("all are taken"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    lock: Lock,
}

/// A handle on a name that many readers or one writer hold, with options. Making one does no I/O.
///
/// Readers and writers stand in one line. Readers next to each other in it get the name together, and later readers do
/// not overtake a waiting writer. There is no upgrade from reading to writing: two readers that both wanted it would
/// wait for each other forever. Release the read permit, and write after reading again. A writer can become a reader:
/// see [`Permit::downgrade`].
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let locker = leasehold::Locker::in_memory();
/// let prices = locker.rw_lock("prices")?;
/// let writer = prices.write().acquire().await?;
/// let written = writer.token();
/// writer.release().await?;
/// let reader = prices.read().acquire().await?;
/// assert_eq!(reader.generation(), Some(written));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RwLock {
    lock: Lock,
}

/// The readers' or the writers' side of an [`RwLock`].
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let locker = leasehold::Locker::in_memory();
/// let reader = locker.rw_lock("prices")?.read();
/// assert!(reader.try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RwPart {
    lock: Lock,
    part: Part,
}

impl Semaphore {
    pub(super) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// Returns the name.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// assert_eq!(locker.semaphore("licenses", 3)?.name().as_str(), "licenses");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &Name {
        self.lock.name()
    }

    /// Waits for one slot or unit.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`], and
    ///
    /// - [`Config`](crate::ErrorKind::Config) if the weight can never fit, or with [`strict`](Self::strict) if the
    ///   capacity of the name is another one;
    /// - [`WrongType`](crate::ErrorKind::WrongType) if the name is used in another way, such as for a lock;
    /// - [`Overloaded`](crate::ErrorKind::Overloaded) if the line is longer than [`max_line`](Self::max_line);
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) on a [quorum](super::Builder::quorum).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves neither a permit nor a place in line behind, as for [`Lock::acquire`].
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let permit = locker.semaphore("licenses", 3)?.acquire().await?;
    /// assert!(permit.is_valid());
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Permit, Error> {
        self.acquire_many(1).await
    }

    /// Takes one slot or unit if it is free and nobody waits; otherwise returns `None`.
    ///
    /// Errors and cancel safety are as for [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let one = locker.semaphore("licenses", 1)?;
    /// let held = one.try_acquire().await?;
    /// assert!(held.is_some() && one.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        self.try_acquire_many(1).await
    }

    /// Waits for one slot or unit for at most this time.
    ///
    /// Errors and cancel safety are as for [`Lock::acquire_within`] and [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let one = locker.semaphore("licenses", 1)?;
    /// let held = one.acquire().await?;
    /// assert!(one.acquire_within(Duration::from_millis(50)).await?.is_none());
    /// # drop(held);
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, time: Duration) -> Result<Option<Permit>, Error> {
        self.acquire_many_within(1, time).await
    }

    /// Waits for this many slots (at most 64) or units, all at once.
    ///
    /// Errors and cancel safety are as for [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let permit = locker.semaphore("gpus", 8)?.acquire_many(2).await?;
    /// assert_eq!(permit.slots(), [0, 1]);
    /// # Ok(()) }
    /// ```
    pub async fn acquire_many(&self, weight: u32) -> Result<Permit, Error> {
        wait_for(&self.lock, self.part(weight)?).await
    }

    /// Takes this many slots or units if they are free and nobody waits; otherwise returns `None`.
    ///
    /// Errors and cancel safety are as for [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let gpus = locker.semaphore("gpus", 8)?;
    /// let held = gpus.try_acquire_many(5).await?;
    /// assert!(held.is_some() && gpus.try_acquire_many(4).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire_many(&self, weight: u32) -> Result<Option<Permit>, Error> {
        ask(&self.lock, self.part(weight)?, Wait::Never).await
    }

    /// Waits for this many slots or units for at most this time.
    ///
    /// Errors and cancel safety are as for [`Lock::acquire_within`] and [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let gpus = locker.semaphore("gpus", 8)?;
    /// assert!(gpus.acquire_many_within(5, Duration::from_secs(1)).await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_many_within(
        &self,
        weight: u32,
        time: Duration,
    ) -> Result<Option<Permit>, Error> {
        within(&self.lock, self.part(weight)?, time).await
    }

    /// Holds one slot or unit for as long as the program runs, and acquires another one after a loss: see [`Permits`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use futures::TryStreamExt;
    ///
    /// let mut permits = locker.semaphore("partitions", 8)?.hold();
    /// let permit = permits.try_next().await?.expect("the locker was not shut down");
    /// println!("working on partition {:?}", permit.slot());
    /// # Ok(()) }
    /// ```
    pub fn hold(&self) -> Permits {
        hold(&self.lock, own_part(&self.lock))
    }

    /// Holds that many slots or units as [`hold`](Self::hold) does.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) if the weight is out of bounds; otherwise nothing fails before the stream is
    /// polled.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use futures::TryStreamExt;
    ///
    /// let mut permits = locker.semaphore("partitions", 8)?.hold_many(2)?;
    /// let permit = permits.try_next().await?.expect("the locker was not shut down");
    /// println!("working on partitions {:?}", permit.slots());
    /// # Ok(()) }
    /// ```
    pub fn hold_many(&self, weight: u32) -> Result<Permits, Error> {
        Ok(hold(&self.lock, self.part(weight)?))
    }

    /// Changes the capacity of the name for all clients, and returns how often it was set.
    ///
    /// No permit is revoked. While more is held than the new capacity, nobody is admitted, and slots from the new
    /// capacity on are not given out again. A waiter whose weight can no longer fit fails with
    /// [`Config`](crate::ErrorKind::Config). This handle's own capacity stays as it was made.
    ///
    /// # Errors
    ///
    /// - [`Config`](crate::ErrorKind::Config) if the capacity is out of bounds;
    /// - [`WrongType`](crate::ErrorKind::WrongType) if the name is used in another way;
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) on a [quorum](super::Builder::quorum);
    /// - the store's error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the capacity may or may not have changed.
    ///
    /// # Example
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let licenses = locker.semaphore("licenses", 3)?;
    /// licenses.resize(5).await?;
    /// assert_eq!(licenses.acquire().await?.capacity(), 5);
    /// # Ok(()) }
    /// ```
    pub async fn resize(&self, capacity: u32) -> Result<u32, Error> {
        self.lock.resize(capacity).await
    }

    /// Returns the events of this handle and its clones, starting with the current state: see [`Lock::events`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use futures::StreamExt;
    /// use leasehold::LeaseEvent;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let licenses = locker.semaphore("licenses", 3)?;
    /// let mut events = licenses.events();
    /// let permit = licenses.acquire().await?;
    /// assert!(matches!(events.next().await, Some(LeaseEvent::Acquired { .. })));
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> LeaseEvents {
        self.lock.events()
    }

    fn part(&self, weight: u32) -> Result<Part, Error> {
        let part = own_part(&self.lock).with_weight(weight);
        part.map_err(|error| error.about(self.name()))
    }
}

impl RwLock {
    pub(super) fn new(lock: Lock) -> Self {
        Self { lock }
    }

    /// Returns the name.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// assert_eq!(locker.rw_lock("prices")?.name().as_str(), "prices");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &Name {
        self.lock.name()
    }

    /// Returns the readers' side: any number of readers hold the name together.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let permit = locker.rw_lock("prices")?.read().acquire().await?;
    /// println!("the last writer's token is {:?}", permit.generation());
    /// # Ok(()) }
    /// ```
    pub fn read(&self) -> RwPart {
        self.side(Part::reader())
    }

    /// Returns the writers' side: a writer holds the name alone.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let permit = locker.rw_lock("prices")?.write().acquire().await?;
    /// println!("write with the token {}", permit.token());
    /// # Ok(()) }
    /// ```
    pub fn write(&self) -> RwPart {
        self.side(Part::writer())
    }

    /// Returns the events of this handle and its clones, starting with the current state: see [`Lock::events`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use futures::StreamExt;
    /// use leasehold::LeaseEvent;
    ///
    /// let locker = leasehold::Locker::in_memory();
    /// let prices = locker.rw_lock("prices")?;
    /// let mut events = prices.events();
    /// let permit = prices.read().acquire().await?;
    /// assert!(matches!(events.next().await, Some(LeaseEvent::Acquired { .. })));
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> LeaseEvents {
        self.lock.events()
    }

    fn side(&self, part: Part) -> RwPart {
        let lock = self.lock.clone();
        RwPart { lock, part }
    }
}

impl RwPart {
    /// Waits for the name. Errors and cancel safety are as for [`Semaphore::acquire`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let permit = locker.rw_lock("prices")?.write().acquire().await?;
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Permit, Error> {
        wait_for(&self.lock, self.part).await
    }

    /// Takes the name if it is free and nobody waits; otherwise returns `None`.
    ///
    /// Errors and cancel safety are as for [`Semaphore::acquire`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let prices = locker.rw_lock("prices")?;
    /// let reader = prices.read().try_acquire().await?;
    /// assert!(reader.is_some() && prices.write().try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        ask(&self.lock, self.part, Wait::Never).await
    }

    /// Waits for the name for at most this time.
    ///
    /// Errors and cancel safety are as for [`Lock::acquire_within`] and [`Semaphore::acquire`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let prices = locker.rw_lock("prices")?;
    /// assert!(prices.read().acquire_within(Duration::from_secs(1)).await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, time: Duration) -> Result<Option<Permit>, Error> {
        within(&self.lock, self.part, time).await
    }

    /// Holds the name for as long as the program runs, and acquires it again after a loss: see [`Permits`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use futures::TryStreamExt;
    ///
    /// let mut permits = locker.rw_lock("prices")?.write().hold();
    /// let permit = permits.try_next().await?.expect("the locker was not shut down");
    /// println!("writing prices with token {}", permit.token());
    /// # Ok(()) }
    /// ```
    pub fn hold(&self) -> Permits {
        hold(&self.lock, self.part)
    }
}

/// Returns the part that a handle on a shared name was made for.
fn own_part(lock: &Lock) -> Part {
    lock.part().unwrap_or(Part::reader())
}

fn hold(lock: &Lock, part: Part) -> Permits {
    Permits::new(Tenures::new(lock.clone(), Some(part)))
}

async fn wait_for(lock: &Lock, part: Part) -> Result<Permit, Error> {
    lock.acquire_part(part).await.map(Permit::new)
}

async fn within(lock: &Lock, part: Part, time: Duration) -> Result<Option<Permit>, Error> {
    let wait = if time.is_zero() {
        Wait::Never
    } else {
        Wait::Until(lock.driver().now() + time)
    };
    ask(lock, part, wait).await
}

async fn ask(lock: &Lock, part: Part, wait: Wait) -> Result<Option<Permit>, Error> {
    Ok(lock.ask_part(part, wait).await?.map(Permit::new))
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", self.name())
            .field("capacity", &own_part(&self.lock).capacity())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RwPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwPart")
            .field("name", self.lock.name())
            .field("writes", &self.part.is_writer())
            .finish_non_exhaustive()
    }
}
