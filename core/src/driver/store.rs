//! Where batches go.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::Driver;
use super::adapted::AdaptedStore;
use super::clock::Clock;
use super::fred::FredStore;
use super::memory::MemoryStore;
use super::seat::Seat;
use super::url::Target;
use crate::adapter::Adapter;
use crate::client::Tls;
use crate::engine::Suspicion;
use crate::error::Error;
use crate::finding::Finding;
use crate::protocol::{BatchReply, ClientId, LockKey, Op};
use crate::time::Timestamp;

/// A store that executes the protocol.
pub(crate) enum Store {
    Fred(FredStore),
    Adapted(AdaptedStore),
    Memory(Arc<MemoryStore>),
}

impl Store {
    /// A store of its own in this process.
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Arc::new(MemoryStore::new()))
    }

    /// Connects to what a URL names.
    pub(crate) async fn connect(url: &str, tls: Option<&Tls>) -> Result<Self, Error> {
        match super::url::parse(url, tls)? {
            Target::Memory(name) => Ok(Self::Memory(MemoryStore::named(&name))),
            Target::Redis(target) => FredStore::connect(*target).await.map(Self::Fred),
        }
    }

    /// The same, for a server that need not be there yet.
    pub(crate) fn connect_lazily(url: &str, tls: Option<&Tls>) -> Result<Self, Error> {
        match super::url::parse(url, tls)? {
            Target::Memory(name) => Ok(Self::Memory(MemoryStore::named(&name))),
            Target::Redis(target) => FredStore::connect_lazily(*target).map(Self::Fred),
        }
    }

    /// Uses a client that the program has.
    pub(crate) async fn with_fred(client: ::fred::clients::Client) -> Result<Self, Error> {
        FredStore::with_client(client).await.map(Self::Fred)
    }

    /// Uses a client that the program adapts.
    pub(crate) async fn with_adapter(adapter: Arc<dyn Adapter>) -> Result<Self, Error> {
        AdaptedStore::open(adapter).await.map(Self::Adapted)
    }

    /// What a locker on it takes for the time.
    pub(super) fn clock(&self) -> Clock {
        match self {
            Self::Fred(_) | Self::Adapted(_) => Clock::Machine,
            Self::Memory(_) => Clock::of_this_runtime(),
        }
    }

    /// What connecting found.
    pub(super) fn findings(&self) -> &[Finding] {
        match self {
            Self::Fred(store) => store.findings(),
            Self::Adapted(store) => store.findings(),
            Self::Memory(_) => &[],
        }
    }

    /// Executes a batch in one script call; it gives up at that moment.
    pub(super) async fn execute(
        &self,
        batch: &[Op],
        give_up: Timestamp,
    ) -> Result<BatchReply, Error> {
        match self {
            Self::Fred(store) => store.execute(batch, give_up).await,
            Self::Adapted(store) => store.execute(batch, give_up).await,
            Self::Memory(store) => Ok(store.execute(batch)),
        }
    }

    /// Which server it is, if that is known.
    pub(super) fn identity(&self) -> Option<String> {
        match self {
            Self::Fred(store) => store.run_id(),
            Self::Adapted(store) => store.run_id(),
            Self::Memory(store) => Some(format!("{:p}", Arc::as_ptr(store))),
        }
    }

    /// Whether a call to it takes time, so that making one of several is worth a pause.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self, Self::Fred(_) | Self::Adapted(_))
    }

    /// Whether it can be asked from the start on.
    pub(super) fn is_connected(&self) -> bool {
        match self {
            Self::Fred(store) => store.is_connected(),
            Self::Adapted(_) | Self::Memory(_) => true,
        }
    }

    /// Reports to the engine when the link goes and comes back.
    pub(super) fn watch_link(&self, driver: &Arc<Driver>, seat: Seat) {
        match self {
            Self::Fred(store) => store.watch_link(driver, seat),
            Self::Adapted(store) => store.watch_link(driver, seat),
            Self::Memory(_) => {}
        }
    }

    /// Hears what the store tells this client, and reports it to the engine.
    pub(super) fn subscribe(&self, driver: &Arc<Driver>, seat: Seat) {
        match self {
            Self::Fred(store) => store.subscribe(driver, seat),
            Self::Adapted(store) => store.subscribe(driver, seat),
            Self::Memory(store) => store.subscribe(driver.client, &seat),
        }
    }

    /// Reads these keys, so that the store says when others change them.
    pub(super) fn watch(&self, keys: Vec<LockKey>, driver: &Arc<Driver>, seat: Seat) {
        match self {
            Self::Fred(store) => store.watch(keys, driver, seat),
            // Changes are found at the next renewal; and nobody else can get at what is in memory.
            Self::Adapted(_) | Self::Memory(_) => {}
        }
    }

    /// The connection may be of no use.
    pub(super) fn suspect(&self, why: Suspicion, runtime: &Handle) {
        match self {
            Self::Fred(store) => store.suspect(why, runtime),
            // Its connection is the program's; and what is in memory always answers.
            Self::Adapted(_) | Self::Memory(_) => {}
        }
    }

    /// To be called once an answer was fed back: who gave a lock up hears of it first, as over a
    /// network.
    pub(super) fn deliver_pushes(&self) {
        match self {
            Self::Fred(_) | Self::Adapted(_) => {}
            Self::Memory(store) => store.deliver_pushes(),
        }
    }

    /// To be called instead of `close` once the runtime is gone, and the connections with it.
    pub(super) fn abandon(&self, client: ClientId) {
        match self {
            Self::Fred(_) | Self::Adapted(_) => {}
            Self::Memory(store) => store.unsubscribe(client),
        }
    }

    pub(super) async fn close(&self, client: ClientId) {
        match self {
            Self::Fred(store) => store.close().await,
            Self::Adapted(store) => store.close().await,
            Self::Memory(store) => store.unsubscribe(client),
        }
    }
}
