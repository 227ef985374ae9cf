//! The clients on which the suite runs.

use leasehold::adapter::{Adapter, Calling, Command, RedisRs};
use leasehold::{Builder, Error, Locker};
use leasehold_tests::{RedisCluster, RedisServer, unique_name};
use redis::aio::ConnectionManagerConfig;
use redis::cluster::{ClusterClient, ClusterClientBuilder};

use crate::client::Client;

/// A client, and its abilities.
pub(crate) trait Kind {
    /// True if it receives pushes.
    const HEARS: bool = true;
    /// True if it replaces a broken connection.
    const RECONNECTS: bool = true;
    /// True if it hears at once of changes by others, and can wait for replicas.
    const PAIRS: bool = true;
    /// True if it can list locks.
    const LISTS: bool = true;
    /// How many connections the program itself keeps after its locker has ended.
    const LEFT: usize = 0;

    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error>;

    /// Starts the store of its locks.
    async fn place() -> Place {
        Place::Server(RedisServer::start().await)
    }
}

pub(crate) enum Place {
    Server(RedisServer),
    Cluster(Box<RedisCluster>),
    Memory(String),
}

impl Place {
    pub(crate) fn server(&self) -> Option<&RedisServer> {
        match self {
            Self::Server(server) => Some(server),
            Self::Cluster(_) | Self::Memory(_) => None,
        }
    }

    pub(crate) fn servers(&self) -> Vec<&RedisServer> {
        match self {
            Self::Server(server) => vec![server],
            Self::Cluster(cluster) => cluster.servers().collect(),
            Self::Memory(_) => Vec::new(),
        }
    }

    pub(crate) fn cluster_mut(&mut self) -> &mut RedisCluster {
        match self {
            Self::Cluster(cluster) => cluster,
            Self::Server(_) | Self::Memory(_) => panic!("the store is not a cluster"),
        }
    }

    async fn of_cluster() -> Self {
        Self::Cluster(Box::new(RedisCluster::with_replicas().await))
    }

    pub(crate) fn server_mut(&mut self) -> &mut RedisServer {
        match self {
            Self::Server(server) => server,
            Self::Cluster(_) | Self::Memory(_) => panic!("the store is not a lone server"),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Server(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
            Self::Memory(name) => format!("memory://{name}"),
        }
    }

    fn address(&self) -> String {
        let port = self.server().map(RedisServer::port);
        format!("127.0.0.1:{}", port.expect("the store is a lone server"))
    }
}

/// The in-memory store.
pub(crate) struct Memory;

impl Kind for Memory {
    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        builder.connect(place.url()).await
    }

    async fn place() -> Place {
        Place::Memory(unique_name("adapters"))
    }
}

/// fred, connected by the library.
pub(crate) struct Fred;

impl Kind for Fred {
    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        builder.connect(place.url()).await
    }
}

/// fred, connected by the program.
pub(crate) struct OwnFred;

impl Kind for OwnFred {
    // Its task runs until the program ends it.
    const LEFT: usize = 1;

    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        use fred::interfaces::ClientLike;
        use fred::types::config::{Config, ReconnectPolicy};
        let config = Config::from_url(&place.url()).expect("a valid URL");
        let client = fred::types::Builder::from_config(config)
            .set_policy(ReconnectPolicy::new_constant(0, 20))
            .build()
            .expect("valid settings");
        client.init().await.expect("the server is up");
        builder.with_fred(client).await
    }
}

/// redis-rs with one connection.
pub(crate) struct Multiplexed;

impl Kind for Multiplexed {
    const RECONNECTS: bool = false;

    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        let client = redis::Client::open(place.url()).expect("a valid URL");
        let connection = client.get_multiplexed_async_connection().await;
        let adapter = RedisRs::new(connection.expect("the server is up"));
        builder.with_adapter(adapter.hearing_by(client)).await
    }
}

/// redis-rs with a connection that is replaced when it breaks.
pub(crate) struct Manager;

impl Kind for Manager {
    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        let client = redis::Client::open(place.url()).expect("a valid URL");
        let connection = client.get_connection_manager().await;
        let adapter = RedisRs::new(connection.expect("the server is up"));
        builder.with_adapter(adapter.hearing_by(client)).await
    }
}

/// redis-rs with a connection that receives pushes itself.
pub(crate) struct Resp3;

impl Kind for Resp3 {
    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        let url = format!("{}?protocol=resp3", place.url());
        let client = redis::Client::open(url).expect("a valid URL");
        let (pushes, _) = tokio::sync::broadcast::channel(4_096);
        let config = ConnectionManagerConfig::new().set_push_sender(pushes.clone());
        let connection = client.get_connection_manager_with_config(config).await;
        let adapter = RedisRs::new(connection.expect("the server is up"));
        builder.with_adapter(adapter.hearing_by(pushes)).await
    }
}

/// fred on a cluster, connected by the library.
pub(crate) struct FredCluster;

impl Kind for FredCluster {
    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        builder.connect(place.url()).await
    }

    async fn place() -> Place {
        Place::of_cluster().await
    }
}

fn nodes(place: &Place) -> Vec<String> {
    let servers = place.servers().into_iter();
    servers.map(RedisServer::url).collect()
}

/// redis-rs on a cluster.
pub(crate) struct Cluster;

impl Kind for Cluster {
    const PAIRS: bool = false;
    const LISTS: bool = false;

    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        let nodes = nodes(place);
        let pushes = redis::Client::open(&*nodes[0]).expect("a valid URL");
        let client = ClusterClient::new(nodes).expect("valid URLs");
        let connection = client.get_async_connection().await;
        let adapter = RedisRs::new(connection.expect("the server is up"));
        builder.with_adapter(adapter.hearing_by(pushes)).await
    }

    async fn place() -> Place {
        Place::of_cluster().await
    }
}

/// redis-rs on a cluster, with connections that receive pushes themselves.
pub(crate) struct Resp3Cluster;

impl Kind for Resp3Cluster {
    const PAIRS: bool = false;
    const LISTS: bool = false;

    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        let (pushes, _) = tokio::sync::broadcast::channel(4_096);
        let client = ClusterClientBuilder::new(nodes(place))
            .use_protocol(redis::ProtocolVersion::RESP3)
            .push_sender(pushes.clone());
        let client = client.build().expect("valid URLs");
        let connection = client.get_async_connection().await;
        let adapter = RedisRs::new(connection.expect("the server is up"));
        builder.with_adapter(adapter.hearing_by(pushes)).await
    }

    async fn place() -> Place {
        Place::of_cluster().await
    }
}

/// The client of the example.
pub(crate) struct Example;

impl Kind for Example {
    const PAIRS: bool = false;

    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        let client = Client::connect(place.address());
        builder.with_adapter(client).await
    }
}

/// The client of the example, reduced to calls.
pub(crate) struct CallsAlone;

struct Calls(Client);

impl Adapter for Calls {
    fn call(&self, command: Command) -> Calling<'_> {
        self.0.call(command)
    }
}

impl Kind for CallsAlone {
    const HEARS: bool = false;
    const PAIRS: bool = false;

    async fn locker(builder: Builder, place: &Place) -> Result<Locker, Error> {
        let client = Client::connect(place.address());
        builder.with_adapter(Calls(client)).await
    }
}
