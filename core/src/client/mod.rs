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
mod tls;

pub use builder::Builder;
pub use events::LeaseEvents;
pub use lease::{Lease, Lost, Run};
pub use lock::Lock;
pub use locker::Locker;
pub use memory::MemoryStore;
pub use tenures::Tenures;
#[cfg(feature = "tls-rustls")]
pub(crate) use tls::Pem;
pub use tls::Tls;

use std::sync::Arc;
use std::time::Duration;

use crate::driver::Driver;
use crate::name::Owner;

/// What all handles of a locker share. When the last of them is dropped, so is this, which closes the
/// store.
struct Core {
    driver: Arc<Driver>,
    namespace: String,
    owner: Owner,
    token_retention: Duration,
    #[cfg(feature = "metrics")]
    recorded: metrics::Recorded,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.driver.close();
    }
}
