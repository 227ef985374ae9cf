//! Where batches go.

use std::sync::Arc;

use ::fred::clients::Client;
use ::fred::interfaces::ClientLike;
use tokio::runtime::Handle;

use super::cluster::Cluster;
use super::memory::MemoryStore;
use super::remote::Remote;
use super::sink::ServerSink;
use super::{Driver, Input};
use crate::adapter::Adapter;
use crate::adapter::fred::{Dial, Fred, Nodes, Target};
use crate::clock::Clock;
use crate::engine::{RequestId, ServerId, Suspicion};
use crate::error::{Error, ErrorKind};
use crate::finding::Finding;
use crate::protocol::{BatchReply, ClientId, Durability, LockKey, Op};
use crate::time::Timestamp;
use crate::url::Kind;

/// A store that executes the protocol.
pub(crate) enum Store {
    Remote(Arc<Remote>),
    Cluster(Arc<Cluster>),
    Memory(Arc<MemoryStore>),
}

impl Store {
    /// A store of its own in this process.
    pub(crate) fn in_memory() -> Self {
        Self::Memory(Arc::new(MemoryStore::new()))
    }

    /// Connects to what a URL names.
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

    /// The same, for a server that need not be there yet.
    pub(crate) fn connect_lazily(url: &str, dial: Dial<'_>) -> Result<Self, Error> {
        let url = dial.url(url)?;
        Ok(match url.kind {
            Kind::Memory => Self::Memory(MemoryStore::named(&url.name)),
            Kind::Cluster => Self::of_cluster(Cluster::connect_lazily(Nodes::new(url, dial)?)?),
            Kind::Server | Kind::Socket | Kind::Sentinel => {
                Self::of_remote(Remote::connect_lazily(Target::new(url, dial)?)?)
            }
        })
    }

    /// A client of the server that a URL names, for the program's own use.
    pub(crate) fn client(url: &str, dial: Dial<'_>) -> Result<Client, Error> {
        let url = dial.url(url)?;
        match url.kind {
            Kind::Memory => {
                let message = "a store in memory has no connection";
                Err(Error::new(ErrorKind::Config, message))
            }
            Kind::Cluster => Nodes::new(url, dial)?.whole().client(),
            Kind::Server | Kind::Socket | Kind::Sentinel => Target::new(url, dial)?.client(),
        }
    }

    /// Uses a client that the program has.
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

    /// Uses a client that the program adapts.
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

    /// Whether it has servers with a clock of their own each.
    pub(super) fn is_cluster(&self) -> bool {
        match self {
            Self::Cluster(_) => true,
            Self::Remote(store) => store.is_clustered(),
            Self::Memory(_) => false,
        }
    }

    /// Whether each of its servers can be sent what has no key in it, and is named when it answers.
    pub(super) fn is_addressed(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// What a locker on it takes for the time.
    pub(super) fn clock(&self) -> Clock {
        match self {
            Self::Remote(_) | Self::Cluster(_) => Clock::Machine,
            Self::Memory(_) => Clock::of_this_runtime(),
        }
    }

    /// What connecting found.
    pub(super) fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Remote(store) => store.findings(),
            Self::Cluster(store) => store.findings(),
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
            Self::Remote(store) => (server, store.execute(batch, give_up).await),
            // In a box, so that the others' future stays as small as it is.
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
                let message = "a store in memory has neither replicas nor a disk";
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        };
        (server, result)
    }

    /// Which server it is, if that is known.
    pub(super) fn identity(&self) -> Option<String> {
        match self {
            Self::Remote(store) => store.run_id(),
            Self::Cluster(_) => None,
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
            Self::Remote(store) if !store.is_open() => Vec::new(),
            Self::Memory(store) if store.check_link().is_err() => Vec::new(),
            Self::Cluster(store) => store.opening(),
            Self::Remote(_) | Self::Memory(_) => vec![Input::Connected { server }],
        }
    }

    /// Its servers that have locks.
    pub(super) fn walked(&self) -> Result<Vec<ServerId>, Error> {
        match self {
            Self::Cluster(store) => Ok(store.walked()),
            Self::Remote(store) if store.is_clustered() => {
                let message = "the locks of a cluster cannot be listed by its client, which does not say \
                               which server replied; a URL of the cluster can";
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            Self::Remote(_) | Self::Memory(_) => Ok(vec![ServerId::ONLY]),
        }
    }

    /// Reports to the engine when the link goes and comes back.
    pub(super) fn watch_link(&self, driver: &Arc<Driver>, sink: ServerSink) {
        match self {
            Self::Remote(store) => store.watch_link(driver, sink),
            Self::Cluster(store) => store.watch_links(driver),
            Self::Memory(store) => store.watch_link(driver.client, &sink),
        }
    }

    /// Hears what the store tells this client, and reports it to the engine.
    pub(super) fn subscribe(&self, driver: &Arc<Driver>, sink: ServerSink) {
        match self {
            Self::Remote(store) => store.subscribe(driver, sink),
            Self::Cluster(store) => store.subscribe(driver, sink.server),
            Self::Memory(store) => store.subscribe(driver.client, &sink),
        }
    }

    /// Reads these keys, so that the store says when others change them.
    pub(super) fn watch(&self, keys: Vec<LockKey>, driver: &Arc<Driver>, sink: ServerSink) {
        match self {
            Self::Remote(store) => store.watch(keys, driver, sink),
            Self::Cluster(store) => store.watch(keys, driver, sink.server),
            // Nobody else can get at it.
            Self::Memory(_) => {}
        }
    }

    /// The connection may be of no use.
    pub(super) fn suspect(&self, server: ServerId, why: Suspicion, runtime: &Handle) {
        match self {
            Self::Remote(store) => store.suspect(why, runtime),
            Self::Cluster(store) => store.suspect(server, why, runtime),
            // What is in memory always answers.
            Self::Memory(_) => {}
        }
    }

    /// To be called once an answer was fed back: who gave a lock up hears of it first, as over a
    /// network.
    pub(super) fn deliver_pushes(&self) {
        match self {
            Self::Remote(_) | Self::Cluster(_) => {}
            Self::Memory(store) => store.deliver_pushes(),
        }
    }

    /// To be called instead of `close` once the runtime is gone, and the connections with it.
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
