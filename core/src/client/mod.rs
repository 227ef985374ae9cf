//! The async public API.

mod builder;
mod events;
mod job;
mod lease;
mod lock;
mod locker;
mod memory;
#[cfg(feature = "metrics")]
mod metrics;
mod observer;
mod persist;
mod several;
mod shared;
mod tenures;
mod yields;

pub use builder::Builder;
pub use events::LeaseEvents;
pub use job::{Claimed, Job, Missed, Turn, Turns};
pub use lease::{Lease, Lost, Run};
pub use lock::Lock;
pub use locker::Locker;
pub use memory::MemoryStore;
pub use observer::Observer;
pub use several::{Bundle, LockSet};
pub use shared::{Permit, Permits, RwLock, RwPart, Semaphore};
pub use tenures::Tenures;
pub use yields::YieldRequest;

use std::sync::{Arc, Mutex, PoisonError};

use leasehold_engine::engine::LockOptions;

use crate::driver::Driver;

/// The state that all handles of a locker share. Dropping the last handle drops this, which closes the store.
struct Core {
    driver: Arc<Driver>,
    namespace: String,
    /// The options of locks with default options.
    options: Arc<LockOptions>,
    /// The option sets that were made last, for sharing.
    recent: Mutex<Vec<Arc<LockOptions>>>,
    #[cfg(feature = "metrics")]
    recorded: metrics::Recorded,
}

impl Core {
    fn shared(&self, options: LockOptions) -> Arc<LockOptions> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        options.shared(&mut recent)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.driver.close();
    }
}
