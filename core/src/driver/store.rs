//! Where batches go.

use std::sync::Arc;

use ::fred::interfaces::ClientLike;
use tokio::runtime::Handle;

use super::adapted::AdaptedStore;
use super::clock::Clock;
use super::cluster::Cluster;
use super::fred::FredStore;
use super::memory::MemoryStore;
use super::seat::Seat;
use super::url::{Dial, Target};
use super::{Driver, Input};
use crate::adapter::Adapter;
use crate::engine::{RequestId, ServerId, Suspicion};
use crate::error::{Error, ErrorKind};
use crate::finding::Finding;
use crate::protocol::{BatchReply, ClientId, Durability, LockKey, Op};
use crate::time::Timestamp;

/// A store that executes the protocol.
pub(crate) enum Store {
    Fred(FredStore),
    Cluster(Arc<Cluster>),
    Adapted(AdaptedStore),
    Memory(Arc<MemoryStore>),
}

impl Store {
    /// A store of its own in this process.
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Arc::new(MemoryStore::new()))
    }

    /// Connects to what a URL names.
    pub(crate) async fn connect(url: &str, dial: Dial<'_>) -> Result<Self, Error> {
        match super::url::parse(url, dial)? {
            Target::Memory(name) => {
                let store = MemoryStore::named(&name);
                store.check_link()?;
                Ok(Self::Memory(store))
            }
            Target::Redis(target) => FredStore::connect(*target).await.map(Self::Fred),
            Target::Cluster(target) => Cluster::connect(*target).await.map(Self::of_cluster),
        }
    }

    /// The same, for a server that need not be there yet.
    pub(crate) fn connect_lazily(url: &str, dial: Dial<'_>) -> Result<Self, Error> {
        match super::url::parse(url, dial)? {
            Target::Memory(name) => Ok(Self::Memory(MemoryStore::named(&name))),
            Target::Redis(target) => FredStore::connect_lazily(*target).map(Self::Fred),
            Target::Cluster(target) => Cluster::connect_lazily(*target).map(Self::of_cluster),
        }
    }

    /// A client of the server that a URL names, for the program's own use.
    pub(crate) fn client(url: &str, dial: Dial<'_>) -> Result<::fred::clients::Client, Error> {
        match super::url::parse(url, dial)? {
            Target::Redis(target) => FredStore::client(*target),
            Target::Cluster(target) => FredStore::client(target.whole()),
            Target::Memory(_) => {
                let message = "a store in memory has no connection";
                Err(Error::new(ErrorKind::Config, message))
            }
        }
    }

    /// Uses a client that the program has.
    pub(crate) async fn with_fred(
        client: ::fred::clients::Client,
        dial: Dial<'_>,
    ) -> Result<Self, Error> {
        if client.is_clustered() {
            return Cluster::with_client(&client, dial.timeout)
                .await
                .map(Self::of_cluster);
        }
        FredStore::with_client(client, dial.timeout)
            .await
            .map(Self::Fred)
    }

    /// Uses a client that the program adapts.
    pub(crate) async fn with_adapter(adapter: Arc<dyn Adapter>) -> Result<Self, Error> {
        AdaptedStore::open(adapter).await.map(Self::Adapted)
    }

    fn of_cluster(cluster: Cluster) -> Self {
        Self::Cluster(Arc::new(cluster))
    }

    /// Whether it has servers with a clock of their own each.
    pub(super) fn is_cluster(&self) -> bool {
        match self {
            Self::Cluster(_) => true,
            Self::Adapted(store) => store.is_clustered(),
            Self::Fred(_) | Self::Memory(_) => false,
        }
    }

    /// Whether each of its servers can be sent what has no key in it, and is named when it answers.
    pub(super) fn is_addressed(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// What a locker on it takes for the time.
    pub(super) fn clock(&self) -> Clock {
        match self {
            Self::Fred(_) | Self::Cluster(_) | Self::Adapted(_) => Clock::Machine,
            Self::Memory(_) => Clock::of_this_runtime(),
        }
    }

    /// What connecting found.
    pub(super) fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Fred(store) => store.findings().to_vec(),
            Self::Cluster(store) => store.findings(),
            Self::Adapted(store) => store.findings(),
            Self::Memory(_) => Vec::new(),
        }
    }

    /// Executes a batch in one script call; it gives up at that moment. Returns who answered, too.
    pub(super) async fn execute(
        &self,
        (server, request): (ServerId, RequestId),
        (batch, durability): (&[Op], Option<&Durability>),
        give_up: Timestamp,
    ) -> (ServerId, Result<BatchReply, Error>) {
        if let Some(durability) = durability {
            // Few ask for it, and every call would have room for it.
            return Box::pin(self.execute_durably(server, (batch, durability), give_up)).await;
        }
        match self {
            Self::Fred(store) => (server, store.execute(batch, give_up).await),
            // In a box, so that the others' future stays as small as it is.
            Self::Cluster(store) => {
                Box::pin(store.execute((server, request), batch, give_up)).await
            }
            Self::Adapted(store) => {
                let executed = Box::pin(store.execute(batch, give_up));
                (server, executed.await)
            }
            Self::Memory(store) => (server, store.execute(batch)),
        }
    }

    async fn execute_durably(
        &self,
        server: ServerId,
        (batch, durability): (&[Op], &Durability),
        give_up: Timestamp,
    ) -> (ServerId, Result<BatchReply, Error>) {
        let result = match self {
            Self::Fred(store) => store.execute_durably(batch, durability, give_up).await,
            Self::Adapted(store) => store.execute_durably(batch, durability, give_up).await,
            Self::Cluster(store) => {
                let asked = (batch, Some(durability));
                return store.execute_in_slot(server, asked, give_up).await;
            }
            Self::Memory(_) => {
                let message = "a store in memory has neither replicas nor a disk";
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        };
        (server, result)
    }

    /// Which server it is, if that is known.
    pub(super) fn identity(&self) -> Option<String> {
        match self {
            Self::Fred(store) => store.run_id(),
            Self::Cluster(_) => None,
            Self::Adapted(store) => store.run_id(),
            Self::Memory(store) => Some(format!("{:p}", Arc::as_ptr(store))),
        }
    }

    /// Whether a call to it takes time, so that making one of several is worth a pause.
    pub(super) fn is_remote(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// What the engine has to hear first, of a store in this place.
    pub(super) fn opening(&self, server: ServerId) -> Vec<Input> {
        match self {
            // Of these it hears when there is a link.
            Self::Fred(store) if !store.is_connected() => Vec::new(),
            Self::Memory(store) if store.check_link().is_err() => Vec::new(),
            Self::Cluster(store) => store.opening(),
            Self::Fred(_) | Self::Adapted(_) | Self::Memory(_) => {
                vec![Input::Connected { server }]
            }
        }
    }

    /// Its servers that have locks.
    pub(super) fn walked(&self) -> Result<Vec<ServerId>, Error> {
        match self {
            Self::Cluster(store) => Ok(store.walked()),
            Self::Adapted(store) if store.is_clustered() => {
                let message = "the locks of a cluster cannot be listed by its client, which does not say \
                               which server replied; a URL of the cluster can";
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            Self::Fred(_) | Self::Adapted(_) | Self::Memory(_) => Ok(vec![ServerId::ONLY]),
        }
    }

    /// Reports to the engine when the link goes and comes back.
    pub(super) fn watch_link(&self, driver: &Arc<Driver>, seat: Seat) {
        match self {
            Self::Fred(store) => store.watch_link(driver, seat),
            Self::Cluster(store) => store.watch_links(driver),
            Self::Adapted(store) => store.watch_link(driver, seat),
            Self::Memory(store) => store.watch_link(driver.client, &seat),
        }
    }

    /// Hears what the store tells this client, and reports it to the engine.
    pub(super) fn subscribe(&self, driver: &Arc<Driver>, seat: Seat) {
        match self {
            Self::Fred(store) => store.subscribe(driver, seat),
            Self::Cluster(store) => store.subscribe(driver, seat.server),
            Self::Adapted(store) => store.subscribe(driver, seat),
            Self::Memory(store) => store.subscribe(driver.client, &seat),
        }
    }

    /// Reads these keys, so that the store says when others change them.
    pub(super) fn watch(&self, keys: Vec<LockKey>, driver: &Arc<Driver>, seat: Seat) {
        match self {
            Self::Fred(store) => store.watch(keys, driver, seat),
            Self::Cluster(store) => store.watch(keys, driver, seat.server),
            Self::Adapted(store) => store.watch(keys, driver, seat),
            // Nobody else can get at it.
            Self::Memory(_) => {}
        }
    }

    /// The connection may be of no use.
    pub(super) fn suspect(&self, server: ServerId, why: Suspicion, runtime: &Handle) {
        match self {
            Self::Fred(store) => store.suspect(why, runtime),
            Self::Cluster(store) => store.suspect(server, why, runtime),
            // Its connection is the program's; and what is in memory always answers.
            Self::Adapted(_) | Self::Memory(_) => {}
        }
    }

    /// To be called once an answer was fed back: who gave a lock up hears of it first, as over a
    /// network.
    pub(super) fn deliver_pushes(&self) {
        match self {
            Self::Fred(_) | Self::Cluster(_) | Self::Adapted(_) => {}
            Self::Memory(store) => store.deliver_pushes(),
        }
    }

    /// To be called instead of `close` once the runtime is gone, and the connections with it.
    pub(super) fn abandon(&self, client: ClientId) {
        match self {
            Self::Fred(_) | Self::Cluster(_) | Self::Adapted(_) => {}
            Self::Memory(store) => store.unsubscribe(client),
        }
    }

    pub(super) async fn close(&self, client: ClientId) {
        match self {
            Self::Fred(store) => store.close().await,
            Self::Cluster(store) => store.close().await,
            Self::Adapted(store) => store.close().await,
            Self::Memory(store) => store.unsubscribe(client),
        }
    }
}
