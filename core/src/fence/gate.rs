//! The in-memory guard.

mod enter;
mod seen;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_engine::limits;
use leasehold_engine::{Error, FencingToken};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::check_resource;
#[cfg(feature = "http")]
pub(super) use enter::Permit;
pub(super) use enter::{Entering, block_on};
use seen::{Seen, Snapshot};

/// An in-memory guard, for a service that keeps its own state.
///
/// It remembers the greatest token of each resource and refuses smaller ones. Every writer of a resource must
/// use the same gate; share it in an [`Arc`](std::sync::Arc) or a static. Calls for different resources do
/// not wait for each other.
///
/// ```
/// use leasehold::{fence::Gate, FencingToken};
///
/// let gate = Gate::new();
/// let (older, newer) = (FencingToken::new(33)?, FencingToken::new(34)?);
/// let mut balance = 100;
/// gate.guard("account/7", older, || balance -= 10)?;
/// gate.guard("account/7", newer, || balance -= 20)?;
/// assert!(gate.guard("account/7", older, || balance = 0).is_err());
/// assert_eq!(balance, 70);
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// # Atomicity
///
/// [`guard`](Self::guard) and [`enter`](Self::enter) hold the resource until the write is over; no other
/// write through them can pass meanwhile. A greater token counts as soon as it arrives, even if its write has
/// to wait: writes already waiting with smaller tokens are refused at once. [`check`](Self::check) neither
/// holds the resource nor waits, so it is correct only if you hold a lock of your own over check and write.
///
/// # Capacity and eviction
///
/// The gate remembers at most [`capacity`](Self::with_capacity) resources. One more evicts the least recently
/// used one and raises a *floor* to its token. For a resource that the gate does not remember, tokens below
/// the floor are refused.
///
/// So eviction never accepts a token that the rule refuses. It may refuse a token that the rule accepts: one
/// that is below the floor, for a resource that was evicted or never seen. By default tokens grow with the
/// server's clock across all names. Such a token then belongs to a holder that acquired before the evicted
/// resource's last holder did and has not written since.
///
/// If your leases last long, or you use
#[cfg_attr(
    feature = "native",
    doc = "[dense tokens](crate::Lock::dense_tokens), which say nothing about the age of another"
)]
#[cfg_attr(
    not(feature = "native"),
    doc = "dense tokens, which say nothing about the age of another"
)]
/// name's, choose a capacity of at least the number of possible resources, so that nothing is ever evicted.
/// Each resource takes the length of its name and some hundred bytes.
///
/// A client that may choose resources and tokens can make the gate refuse everyone else: with the token
/// 2^53-1 for a resource, or with enough resources to fill the table. Only authentication in front of the
/// gate prevents that.
///
/// # Restarts
///
/// An empty gate accepts every token. If the guarded state outlives the process, so must the gate: it is
/// [`Serialize`] and [`Deserialize`], with everything that it remembers. Store it in the same transaction as
/// the state, or take its snapshot *after* the state's, so that it covers every write in the state. A
/// snapshot lacks later tokens. A gate that is restored without its state accepts tokens that were stale by
/// then.
///
/// ```
/// use leasehold::{fence::Gate, FencingToken};
///
/// let gate = Gate::new();
/// gate.check("account/7", FencingToken::new(34)?)?;
/// let saved = serde_json::to_string(&gate)?;
///
/// let restored: Gate = serde_json::from_str(&saved)?;
/// assert!(restored.check("account/7", FencingToken::new(33)?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Gate {
    seen: Mutex<Seen>,
}

impl Gate {
    /// The number of resources that a gate from [`new`](Self::new) remembers.
    pub const DEFAULT_CAPACITY: usize = limits::count("gateCapacity") as usize;

    /// The maximum number of writes that may wait for one resource.
    ///
    /// One more fails with [`Overloaded`](crate::ErrorKind::Overloaded).
    pub const MAX_WAITING: usize = limits::count("gateWaiting") as usize;

    /// Returns an empty gate that remembers up to [`DEFAULT_CAPACITY`](Self::DEFAULT_CAPACITY) resources.
    ///
    /// ```
    /// let gate = leasehold::fence::Gate::new();
    /// assert_eq!(gate.highest("account/7"), None);
    /// ```
    pub fn new() -> Self {
        Self::with_capacity(Self::DEFAULT_CAPACITY)
    }

    /// Returns an empty gate that remembers up to the given number of resources, at least one.
    ///
    /// It allocates memory as resources arrive.
    ///
    /// ```
    /// use leasehold::{fence::Gate, FencingToken};
    ///
    /// let gate = Gate::with_capacity(1);
    /// gate.check("a", FencingToken::new(34)?)?;
    /// gate.check("b", FencingToken::new(35)?)?; // "a" is forgotten, and 34 is the floor
    /// assert!(gate.check("a", FencingToken::new(33)?).is_err());
    /// assert!(gate.check("c", FencingToken::new(33)?).is_err());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn with_capacity(resources: usize) -> Self {
        Self {
            seen: Mutex::new(Seen::new(resources.max(1))),
        }
    }

    /// Records the token, or refuses it if a greater one was seen.
    ///
    /// It holds nothing: by the time you write, a greater token may have passed. Use [`guard`](Self::guard)
    /// or [`enter`](Self::enter) for all writers of the resource, unless you hold a lock of your own over
    /// check and write. It never waits, not even for a write in progress.
    ///
    /// Errors: [`StaleToken`](crate::ErrorKind::StaleToken) if a greater token was seen, or if the gate does
    /// not remember the resource and the token is below the floor; [`Config`](crate::ErrorKind::Config) if
    /// the resource's name is not 1 to 512 bytes long; [`Overloaded`](crate::ErrorKind::Overloaded) if the
    /// gate is full of resources that are being written to.
    ///
    /// ```
    /// use leasehold::{fence::Gate, ErrorKind, FencingToken};
    ///
    /// let gate = Gate::new();
    /// gate.check("account/7", FencingToken::new(34)?)?;
    /// gate.check("account/7", FencingToken::new(34)?)?; // a holder writes many times
    /// let error = gate.check("account/7", FencingToken::new(33)?).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::StaleToken);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn check(&self, resource: &str, token: FencingToken) -> Result<(), Error> {
        check_resource(resource)?;
        let admitted = self.lock().admit(resource, token, true)?;
        // Wakers run foreign code: never call them under the lock.
        admitted.wake_overtaken();
        Ok(())
    }

    /// Checks the token and runs the write; no other write to the resource passes meanwhile.
    ///
    /// It blocks the thread while another write to the resource is in progress, so async code uses
    /// [`enter`](Self::enter) instead.
    ///
    /// The write must not use the gate for the same resource again: it would wait for itself. If it enters
    /// another resource, every writer must enter the two in the same order, or they deadlock. The token
    /// counts even if the write panics or fails.
    ///
    /// Errors: those of [`check`](Self::check), and [`Overloaded`](crate::ErrorKind::Overloaded) if [too many
    /// writes](Self::MAX_WAITING) wait. The write has not run then.
    ///
    /// ```
    /// use leasehold::{fence::Gate, FencingToken};
    ///
    /// let gate = Gate::new();
    /// let mut balance = 100;
    /// let left = gate.guard("account/7", FencingToken::new(34)?, || {
    ///     balance -= 10;
    ///     balance
    /// })?;
    /// assert_eq!(left, 90);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn guard<T>(
        &self,
        resource: &str,
        token: FencingToken,
        write: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        let _permit = block_on(Entering::new(self, resource, token))?;
        Ok(write())
    }

    /// Checks the token and holds the resource until the returned value is dropped.
    ///
    /// While another write to the resource is in progress it waits, in order of arrival.
    ///
    /// Do not enter a resource again while you hold it. A write that never ends blocks all later ones, those
    /// of newer holders too, so give it a time limit.
    ///
    /// Errors: those of [`guard`](Self::guard). A waiting write is refused as soon as a greater token
    /// arrives.
    ///
    /// Cancel safe: dropping the future gives up the place in line. The token still counts.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{fence::Gate, FencingToken};
    ///
    /// let gate = Gate::new();
    /// let entered = gate.enter("account/7", FencingToken::new(34)?).await?;
    /// tokio::task::yield_now().await; // the write
    /// drop(entered);
    /// # Ok(()) }
    /// ```
    pub async fn enter(&self, resource: &str, token: FencingToken) -> Result<Entered<'_>, Error> {
        let permit = Entering::new(self, resource, token).await?;
        Ok(Entered { _permit: permit })
    }

    /// Returns the smallest token that passes, or `None` if every token passes.
    ///
    /// That is the greatest token seen for the resource, or the floor if the gate does not remember it. The
    /// answer may be out of date at once.
    ///
    /// ```
    /// use leasehold::{fence::Gate, FencingToken};
    ///
    /// let gate = Gate::new();
    /// let token = FencingToken::new(34)?;
    /// gate.check("account/7", token)?;
    /// assert_eq!(gate.highest("account/7"), Some(token));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn highest(&self, resource: &str) -> Option<FencingToken> {
        self.lock().highest(resource)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        // No change to `Seen` can panic halfway, so a poisoned lock guards a consistent state.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}

/// Serializes as `{"capacity": 65536, "floor": null, "seen": [["account/7", 34]]}`, least recently used
/// first.
///
/// Tokens of writes in progress are included; the writes are not blocked.
impl Serialize for Gate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let snapshot = self.lock().snapshot();
        snapshot.serialize(serializer)
    }
}

/// Refuses a state that no gate can have written: bad tokens or names, duplicates, more resources than fit.
impl<'de> Deserialize<'de> for Gate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let snapshot = Snapshot::deserialize(deserializer)?;
        let seen = Seen::restore(snapshot).map_err(serde::de::Error::custom)?;
        Ok(Self {
            seen: Mutex::new(seen),
        })
    }
}

/// The right to write to a resource until this is dropped. Returned by [`Gate::enter`].
#[must_use = "another write may pass once it is dropped"]
pub struct Entered<'a> {
    _permit: enter::Permit<&'a Gate>,
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").finish_non_exhaustive()
    }
}
