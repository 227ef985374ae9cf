use std::fmt;
use std::sync::Arc;

use crate::driver;

/// The store in memory that lockers of `memory://NAME` share, to be taken away from them.
///
/// It is for tests and demonstrations: to see what a program does when a server of its locks fails. What is
/// done here all lockers on the store feel, in the way in which they would feel it of a server. The store
/// lives for as long as a locker or a handle like this one is there.
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
    /// The store of `memory://NAME`, whether it is there already or not. The name is not percent-encoded here.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            store: driver::MemoryStore::named(name),
        }
    }

    /// From now on nobody reaches it: connections are broken, what is asked fails with
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable), and pushes are lost. It keeps what it
    /// has, and its clock goes on.
    pub fn cut_off(&self) {
        self.store.cut_off();
    }

    /// It can be reached again, and lockers connect to it at once. To go on as a server that restarted
    /// without its data, [`clear`](Self::clear) it before.
    pub fn reconnect(&self) {
        self.store.reconnect();
    }

    /// Forgets all locks, places in line and last tokens, as `FLUSHALL` does; also while it is cut off.
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
