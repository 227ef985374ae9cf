use std::time::Duration;

use super::{Lock, LockSet};

/// Options, which hold for every name. A bad one fails the acquisition.
impl LockSet {
    /// Sets the time to live of each lease: see [`Lock::ttl`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let both = locker.all(["a", "b"])?.ttl(Duration::from_secs(5));
    /// assert!(both.acquire().await?.remaining() <= Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.each(|lock| lock.ttl(ttl))
    }

    /// Limits how long each lease may be held: see [`Lock::at_most`]. The time until the last name is held counts.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// use std::time::Duration;
    ///
    /// let both = locker.all(["a", "b"])?.at_most(Duration::from_secs(600));
    /// assert!(both.acquire().await?.is_valid());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn at_most(self, age: Duration) -> Self {
        self.each(|lock| lock.at_most(age))
    }

    /// Sets an owner, which outlives the process and reclaims its names: see [`Lock::owner`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["a", "b"])?.owner("job-7").acquire().await?;
    /// let holder = locker.inspect("a").await?.holder.expect("it is held");
    /// assert_eq!(holder.owner.label(), "job-7");
    /// # drop(bundle);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn owner(self, owner: impl AsRef<str>) -> Self {
        self.each(|lock| lock.owner(&owner))
    }

    /// Makes tokens count 1, 2, 3, …: see [`Lock::dense_tokens`].
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// # let locker = leasehold::Locker::in_memory();
    /// let bundle = locker.all(["a", "b"])?.dense_tokens().acquire().await?;
    /// assert!(bundle.tokens().all(|(_, token)| token.get() == 1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn dense_tokens(self) -> Self {
        self.each(Lock::dense_tokens)
    }

    /// Makes each lock count only once `n` replicas have it: see [`Lock::replicas`].
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use std::time::Duration;
    ///
    /// let locker = leasehold::Locker::connect("redis://127.0.0.1").await?;
    /// let both = locker.all(["a", "b"])?.replicas(1, Duration::from_millis(200));
    /// println!("a replica has both, too: {:?}", both.acquire().await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn replicas(self, n: u32, timeout: Duration) -> Self {
        self.each(|lock| lock.replicas(n, timeout))
    }

    /// Makes each lock count only once it is on the server's disk: see [`Lock::fsynced`].
    ///
    /// ```no_run
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// let locker = leasehold::Locker::connect("redis://127.0.0.1").await?;
    /// let bundle = locker.all(["a", "b"])?.fsynced().acquire().await?;
    /// println!("both are on the disk: {bundle:?}");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fsynced(self) -> Self {
        self.each(Lock::fsynced)
    }

    fn each(mut self, change: impl Fn(Lock) -> Lock) -> Self {
        self.locks = self.locks.into_iter().map(change).collect();
        self
    }
}
