//! The async public surface.

mod builder;
mod events;
mod lease;
mod lock;
mod locker;
mod memory;
#[cfg(feature = "metrics")]
mod metrics;
mod tenures;

pub use builder::Builder;
pub use events::LeaseEvents;
pub use lease::{Lease, Lost, Run};
pub use lock::Lock;
pub use locker::Locker;
pub use memory::MemoryStore;
pub use tenures::Tenures;

use std::sync::{Arc, Mutex, PoisonError};

use leasehold_engine::engine::LockOptions;

use crate::driver::Driver;

/// What all handles of a locker share. When the last of them is dropped, so is this, which closes the
/// store.
struct Core {
    driver: Arc<Driver>,
    namespace: String,
    /// Of locks whose options nobody has set.
    options: Arc<LockOptions>,
    /// Those that were set last.
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
