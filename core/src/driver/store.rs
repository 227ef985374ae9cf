//! Stores: the destinations of batches.

use std::sync::Arc;

use ::fred::clients::Client;
use ::fred::interfaces::ClientLike;
use leasehold_engine::engine::{RequestId, ServerId, Suspicion};
use leasehold_engine::protocol::{BatchReply, ClientId, Durability, LockKey, Op};
use leasehold_engine::time::Timestamp;
use leasehold_engine::{Error, ErrorKind, Finding};
use tokio::runtime::Handle;

use super::cluster::Cluster;
use super::memory::MemoryStore;
use super::remote::Remote;
use super::sink::ServerSink;
use super::{Driver, Input};
use crate::adapter::Adapter;
use crate::adapter::fred::{Dial, Fred, Nodes, Target};
use crate::clock::Clock;
use crate::url::Kind;

/// A store that executes the protocol.
pub(crate) enum Store {
    Remote(Arc<Remote>),
    Cluster(Arc<Cluster>),
    Memory(Arc<MemoryStore>),
}

impl Store {
    /// Creates an in-memory store that nothing else shares.
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Arc::new(MemoryStore::new()))
    }

    /// Connects to the server or cluster of a URL.
    pub(crate) async fn connect(url: &str, dial: Dial<'_>) -> Result<Self, Error> {
        let url = dial.url(url)?;
        Ok(match url.kind {
            Kind::Memory => {
                let store = MemoryStore::named(&url.name);
                store.check_link()?;
                Self::Memory(store)
            }
            Kind::Cluster => Self::of_cluster(Cluster::connect(Nodes::new(url, dial)?).await?),
            Kind::Server | Kind::Socket | Kind::Sentinel => {
                Self::of_remote(Remote::connect(Target::new(url, dial)?).await?)
            }
        })
    }

    /// Creates a store that connects in the background, with retries.
    pub(crate) fn connect_lazily(url: &str, dial: Dial<'_>) -> Result<Self, Error> {
        let url = dial.url(url)?;
        Ok(match url.kind {
            Kind::Memory => Self::Memory(MemoryStore::named(&url.name)),
            Kind::Cluster => Self::of_cluster(Cluster::connect_lazily(Nodes::new(url, dial)?)?),
            Kind::Server | Kind::Socket | Kind::Sentinel => {
                Self::of_remote(Remote::unconnected(Target::new(url, dial)?, false, false)?.1)
            }
        })
    }

    /// Creates a client for the URL's server, for the program's own use.
    pub(crate) fn client(url: &str, dial: Dial<'_>) -> Result<Client, Error> {
        let url = dial.url(url)?;
        match url.kind {
            Kind::Memory => {
                let message = "an in-memory store has no connection";
                Err(Error::new(ErrorKind::Config, message))
            }
            Kind::Cluster => Nodes::new(url, dial)?.whole().client(true),
            Kind::Server | Kind::Socket | Kind::Sentinel => Target::new(url, dial)?.client(true),
        }
    }

    /// Uses a fred client of the program's.
    pub(crate) async fn with_fred(client: Client, dial: Dial<'_>) -> Result<Self, Error> {
        if client.is_clustered() {
            let nodes = Nodes::of_program(&client, dial.timeout);
            return Cluster::connect(nodes).await.map(Self::of_cluster);
        }
        let client = Arc::new(Fred::of_program(client, dial.timeout));
        let remote = Remote::of_fred(client, false, dial.timeout);
        remote.check().await?;
        Ok(Self::of_remote(remote))
    }

    /// Uses an adapter of the program's.
    pub(crate) async fn with_adapter(adapter: Arc<dyn Adapter>) -> Result<Self, Error> {
        let remote = Remote::of_adapter(adapter);
        remote.check().await?;
        Ok(Self::of_remote(remote))
    }

    fn of_cluster(cluster: Cluster) -> Self {
        Self::Cluster(Arc::new(cluster))
    }

    fn of_remote(remote: Remote) -> Self {
        Self::Remote(Arc::new(remote))
    }

    /// Returns true if the store consists of servers with a clock each.
    pub(super) fn is_cluster(&self) -> bool {
        match self {
            Self::Cluster(_) => true,
            Self::Remote(store) => store.is_clustered(),
            Self::Memory(_) => false,
        }
    }

    /// Returns true if requests without a key can be sent to a given server, and replies name theirs.
    pub(super) fn is_addressed(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Returns the clock of lockers on this store.
    pub(super) fn clock(&self) -> Clock {
        match self {
            Self::Remote(_) | Self::Cluster(_) => Clock::Machine,
            Self::Memory(_) => Clock::of_this_runtime(),
        }
    }

    /// Returns the findings so far.
    pub(super) fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Remote(store) => store.findings(),
            Self::Cluster(store) => store.findings(),
            Self::Memory(_) => Vec::new(),
        }
    }

    /// Executes a batch in one script call, with a time limit. Returns the server that answered, too.
    pub(super) async fn execute(
        &self,
        (server, request): (ServerId, RequestId),
        (batch, durability): (&[Op], Option<&Durability>),
        give_up: Timestamp,
    ) -> (ServerId, Result<BatchReply, Error>) {
        if let Some(durability) = durability {
            // Boxed, because it is rare and would enlarge the future of every call.
            return Box::pin(self.execute_durably(server, (batch, durability), give_up)).await;
        }
        match self {
            Self::Remote(store) => (server, store.execute(batch, give_up).await),
            // Boxed, to keep the future of the others small.
            Self::Cluster(store) => {
                Box::pin(store.execute((server, request), batch, give_up)).await
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
            Self::Remote(store) => store.execute_durably(batch, durability, give_up).await,
            Self::Cluster(store) => {
                let asked = (batch, Some(durability));
                return store.execute_in_slot(server, asked, give_up).await;
            }
            Self::Memory(_) => {
                let message = "an in-memory store has neither replicas nor a disk";
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        };
        (server, result)
    }

    /// Returns a server's identity, if it is known.
    pub(super) fn identity(&self) -> Option<String> {
        match self {
            Self::Remote(store) => store.run_id(),
            Self::Cluster(_) => None,
            Self::Memory(store) => Some(format!("{:p}", Arc::as_ptr(store))),
        }
    }

    /// Returns true if a call takes time, so that waiting to merge calls pays.
    pub(super) fn is_remote(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// Returns the inputs that the engine starts with.
    pub(super) fn opening(&self, server: ServerId) -> Vec<Input> {
        match self {
            // Reported once the store is connected.
            Self::Remote(store) if !store.is_open() => Vec::new(),
            Self::Memory(store) if store.check_link().is_err() => Vec::new(),
            Self::Cluster(store) => store.opening(),
            Self::Remote(_) | Self::Memory(_) => vec![Input::Connected { server }],
        }
    }

    /// Returns the servers that have locks.
    pub(super) fn walked(&self) -> Result<Vec<ServerId>, Error> {
        match self {
            Self::Cluster(store) => Ok(store.walked()),
            Self::Remote(store) if store.is_clustered() => {
                let message = "the locks of a cluster cannot be listed through its client, which does not say \
                               which server replied; connect by a URL of the cluster instead";
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            Self::Remote(_) | Self::Memory(_) => Ok(vec![ServerId::ONLY]),
        }
    }

    /// Reports changes of the link, in the background.
    pub(super) fn watch_link(&self, driver: &Arc<Driver>, sink: ServerSink) {
        match self {
            Self::Remote(store) => store.watch_link(driver, sink),
            Self::Cluster(store) => store.watch_links(driver),
            Self::Memory(store) => store.watch_link(driver.client, &sink),
        }
    }

    /// Reports pushes, in the background.
    pub(super) fn subscribe(&self, driver: &Arc<Driver>, sink: ServerSink) {
        match self {
            Self::Remote(store) => store.subscribe(driver, sink),
            Self::Cluster(store) => store.subscribe(driver, sink.server),
            Self::Memory(store) => store.subscribe(driver.client, &sink),
        }
    }

    /// Reads these keys, so that the store reports changes by other clients.
    pub(super) fn watch(&self, keys: Vec<LockKey>, driver: &Arc<Driver>, sink: ServerSink) {
        match self {
            Self::Remote(store) => store.watch(keys, driver, sink),
            Self::Cluster(store) => store.watch(keys, driver, sink.server),
            // No other client can change the keys.
            Self::Memory(_) => {}
        }
    }

    /// Tells the store that its connection may be useless.
    pub(super) fn suspect(&self, server: ServerId, why: Suspicion, runtime: &Handle) {
        match self {
            Self::Remote(store) => store.suspect(why, runtime),
            Self::Cluster(store) => store.suspect(server, why, runtime),
            // An in-memory store always answers.
            Self::Memory(_) => {}
        }
    }

    /// Delivers pushes. Call it after feeding back a reply: then, as over a network, the caller that released
    /// a lock learns so first.
    pub(super) fn deliver_pushes(&self) {
        match self {
            Self::Remote(_) | Self::Cluster(_) => {}
            Self::Memory(store) => store.deliver_pushes(),
        }
    }

    /// Use it instead of `close` once the runtime has ended, and the connections with it.
    pub(super) fn abandon(&self, client: ClientId) {
        match self {
            Self::Remote(_) | Self::Cluster(_) => {}
            Self::Memory(store) => store.unsubscribe(client),
        }
    }

    pub(super) async fn close(&self, client: ClientId) {
        match self {
            Self::Remote(store) => store.close().await,
            Self::Cluster(store) => store.close().await,
            Self::Memory(store) => store.unsubscribe(client),
        }
    }
}
