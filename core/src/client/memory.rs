use std::fmt;
use std::sync::Arc;

use crate::driver;

/// Fault injection for tests: the in-memory store that lockers on `memory://NAME` share.
///
/// Use it to see what a program does when a server of its locks fails. Every locker on the store feels a
/// fault as it would feel that of a server. The store lives for as long as a locker on it or a `MemoryStore`
/// for it exists.
///
/// ```
/// use leasehold::{Locker, MemoryStore};
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let locker = Locker::quorum(["memory://a", "memory://b", "memory://c"]).await?;
/// let lease = locker.lock("orders/42")?.acquire().await?;
/// MemoryStore::named("a").cut_off();
/// let (token, released) = (lease.token(), lease.release().await);
/// assert!(released.is_ok(), "two of three are enough");
/// assert!(locker.lock("orders/42")?.acquire().await?.token() > token);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    name: String,
    store: Arc<driver::MemoryStore>,
}

impl MemoryStore {
    /// Returns a handle on the store of `memory://NAME`, whether it exists yet or not.
    ///
    /// The name is taken as it is, without percent-decoding.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            store: driver::MemoryStore::named(name),
        }
    }

    /// Cuts the store off from all lockers, as a network failure would.
    ///
    /// Connections break, requests fail with [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable), and
    /// pushes are lost. The store keeps its data, and its clock goes on.
    pub fn cut_off(&self) {
        self.store.cut_off();
    }

    /// Ends a [`cut_off`](Self::cut_off). Lockers reconnect at once.
    ///
    /// To play a server that restarted without its data, call [`clear`](Self::clear) first.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::{Locker, MemoryStore};
    ///
    /// let locker = Locker::connect("memory://docs-reconnect").await?;
    /// let store = MemoryStore::named("docs-reconnect");
    /// store.cut_off();
    /// assert!(locker.lock("orders/42")?.try_acquire().await.unwrap_err().is_transient());
    /// store.reconnect();
    /// assert!(locker.lock("orders/42")?.acquire().await?.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn reconnect(&self) {
        self.store.reconnect();
    }

    /// Deletes all locks, lines of waiters and last tokens, as `FLUSHALL` does. Works while the store is cut off, too.
    /// Holders learn of it at their next renewal.
    pub fn clear(&self) {
        self.store.clear();
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        f.debug_struct("MemoryStore")
            .field("name", name)
            .finish_non_exhaustive()
    }
}
