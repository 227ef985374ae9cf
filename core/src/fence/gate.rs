//! The guard in memory.

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

/// A guard in memory, for a service that owns its state.
///
/// It remembers the greatest token of each resource and refuses a smaller one. Every writer of a
/// resource must come through the same gate; share it in an [`Arc`](std::sync::Arc) or a static.
/// Calls for different resources do not wait for each other's writes.
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
/// # What it takes as one step
///
/// [`guard`](Self::guard) and [`enter`](Self::enter) hold the resource until the write is over:
/// no other write that comes through them can pass meanwhile. A greater token counts from the
/// moment at which it comes, even if it has to wait: smaller ones that wait with it are refused
/// at once. [`check`](Self::check) holds nothing and waits for nothing, so it is right only if
/// check and write are under a lock of yours.
///
/// # Its bound, and what is forgotten
///
/// At most [`capacity`](Self::with_capacity) resources are remembered. When one more comes, the
/// one that was used longest ago is forgotten, and a *floor* is raised to its token: for a
/// resource that is not remembered, a token below the floor is refused. So to forget never lets
/// a token pass that would have been refused. It may refuse one that would have passed: a holder
/// whose resource is not remembered and whose token is smaller than one that was forgotten. With
/// tokens as they are by default, which grow with the server's clock across all names, these are
/// holders that acquired before the last holder of the forgotten resource did, and have not
/// written since. Whoever has leases that last long, or
#[cfg_attr(
    feature = "native",
    doc = "[dense tokens](crate::Lock::dense_tokens), which say nothing about the age of another"
)]
#[cfg_attr(
    not(feature = "native"),
    doc = "dense tokens, which say nothing about the age of another"
)]
/// name's, must choose the capacity so that nothing is ever forgotten: no less than the number of
/// resources that there can be. Each takes the length of its name and some hundred bytes.
///
/// A client that may name resources and tokens can make the gate refuse everybody else: by one token
/// of 2^53 - 1 for a resource, or by many resources that fill the table. Only authentication before
/// the gate prevents that.
///
/// # After a restart
///
/// A gate that forgets everything lets everything pass. If the state that it guards outlives the
/// process, so must the gate: it is [`Serialize`] and [`Deserialize`], with all that it remembers.
/// Keep it in the same transaction as the state, or take its snapshot *after* the state's: its
/// tokens are then no smaller than those of the writes in it. What came after the snapshot is not
/// in it: a gate that is restored without the state is open to what happened between.
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
    /// How many resources [`new`](Self::new) remembers.
    pub const DEFAULT_CAPACITY: usize = limits::count("gateCapacity") as usize;

    /// How many writes may wait for one resource; [`Overloaded`](crate::ErrorKind::Overloaded)
    /// beyond.
    pub const MAX_WAITING: usize = limits::count("gateWaiting") as usize;

    /// A gate that has seen nothing and remembers
    /// [`DEFAULT_CAPACITY`](Self::DEFAULT_CAPACITY) resources.
    ///
    /// ```
    /// let gate = leasehold::fence::Gate::new();
    /// assert_eq!(gate.highest("account/7"), None);
    /// ```
    pub fn new() -> Self {
        Self::with_capacity(Self::DEFAULT_CAPACITY)
    }

    /// A gate that remembers so many resources, at least one. It takes memory as they come.
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

    /// Notes the token, and refuses it if a greater one was seen. It holds nothing: by the time
    /// of your write a greater token may have passed. Unless a lock of yours is held over both,
    /// take [`guard`](Self::guard) or [`enter`](Self::enter), and for all writers of the resource.
    /// Never waits, not even for a write that is under way.
    ///
    /// [`StaleToken`](crate::ErrorKind::StaleToken) if a greater token was seen, or if the
    /// resource is not remembered and the token is below the floor;
    /// [`Config`](crate::ErrorKind::Config) if the resource is not 1 to 512 bytes long;
    /// [`Overloaded`](crate::ErrorKind::Overloaded) if the gate is full of resources that are
    /// being written to.
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
        // Wakers are code of others: never under the lock.
        admitted.wake_overtaken();
        Ok(())
    }

    /// Checks the token and runs the write, while no other write to the resource passes. Blocks
    /// the thread while another one is under way, and so is not for async code, which has
    /// [`enter`](Self::enter).
    ///
    /// The write must not come back to the gate for the same resource, because it would wait for
    /// itself; nor for another resource, if elsewhere it is done the other way round. If the
    /// write panics or fails, its token was seen all the same.
    ///
    /// The errors are those of [`check`](Self::check), and
    /// [`Overloaded`](crate::ErrorKind::Overloaded) if too many wait; the write has not run then.
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

    /// Checks the token and holds the resource until the answer is dropped; waits while another
    /// write to it is under way, in the order of arrival.
    ///
    /// Do not enter a resource again while you hold it. A write that takes for ever holds up all
    /// that come after it, the newer holder's too: give it a time limit.
    ///
    /// The errors are those of [`guard`](Self::guard). A write that waits is refused as soon as a
    /// greater token comes. Cancel-safe: dropping the future gives up the place in line; a
    /// token that was seen stays seen.
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

    /// The smallest token that passes: the greatest that was seen for the resource, or the floor
    /// if it is not remembered. `None` if every token passes. It may be out of date at once.
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
        // Nothing panics halfway through a change.
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

/// As `{"capacity": 65536, "floor": null, "seen": [["account/7", 34]]}`, the resource first that
/// was used longest ago. Writes that are under way are not held up, and their tokens are in it.
impl Serialize for Gate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let snapshot = self.lock().snapshot();
        snapshot.serialize(serializer)
    }
}

/// Refuses what no gate can have written: bad tokens or names, a resource twice, more than fit.
impl<'de> Deserialize<'de> for Gate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let snapshot = Snapshot::deserialize(deserializer)?;
        let seen = Seen::restore(snapshot).map_err(serde::de::Error::custom)?;
        Ok(Self {
            seen: Mutex::new(seen),
        })
    }
}

/// The right to write to a resource, until it is dropped; from [`Gate::enter`].
#[must_use = "another write may pass once it is dropped"]
pub struct Entered<'a> {
    _permit: enter::Permit<&'a Gate>,
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").finish_non_exhaustive()
    }
}
