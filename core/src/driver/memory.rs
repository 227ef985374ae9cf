//! A store in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::memory::MemoryServer;
use crate::protocol::{BatchReply, Op};
use crate::rt;
use crate::time::{ServerTime, Timestamp};

pub(crate) struct MemoryStore {
    server: Mutex<MemoryServer>,
    /// Its clock starts at the wall's and then counts evenly, whatever the wall does.
    origin: (ServerTime, Timestamp),
}

/// The stores of `memory://` URLs that somebody uses.
static NAMED: Mutex<BTreeMap<String, Weak<MemoryStore>>> = Mutex::new(BTreeMap::new());

impl MemoryStore {
    pub(super) fn new() -> Self {
        Self {
            server: Mutex::default(),
            origin: (rt::wall_clock(), rt::now()),
        }
    }

    /// The store that everyone in this process gets who asks for this name.
    pub(super) fn named(name: &str) -> Arc<Self> {
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = named.get(name).and_then(Weak::upgrade) {
            return store;
        }
        let store = Arc::new(Self::new());
        named.insert(name.to_owned(), Arc::downgrade(&store));
        store
    }

    pub(super) fn execute(&self, batch: &[Op]) -> BatchReply {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        // Read with the lock held, so that the store's time never goes back.
        let now = self.origin.0 + rt::now().since(self.origin.1);
        server.execute(now, batch)
    }
}
