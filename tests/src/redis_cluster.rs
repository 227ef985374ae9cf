//! Real clusters.

use std::path::Path;
use std::time::Duration;

use crate::{Admin, RedisConfig, RedisServer, Resp, eventually, ports};

const LIMIT: Duration = Duration::from_secs(30);
const SLOTS: u16 = 16_384;

/// A cluster of masters that share the slots equally, each with a replica if the test asks for it.
#[derive(Debug)]
pub struct RedisCluster {
    /// The servers that are masters at first.
    pub masters: Vec<RedisServer>,
    /// The replica of each master; empty without replicas.
    pub replicas: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts three masters.
    pub async fn start() -> Self {
        Self::start_with(&RedisServer::config(), 3, false).await
    }

    /// Starts three masters and three replicas. A replica takes over for a master that is away for two
    /// seconds, once it is [allowed](Self::allow_failover) to: a busy machine may keep a master from
    /// answering that long.
    pub async fn with_replicas() -> Self {
        Self::start_with(&RedisServer::config(), 3, true).await
    }

    /// Starts this many masters of this configuration, each with a replica if `replicas`.
    pub async fn start_with(config: &RedisConfig, masters: usize, replicas: bool) -> Self {
        Self::start_each(&vec![config.clone(); masters], replicas).await
    }

    /// Starts a master for each of these numbers of seconds, by which its clock is ahead of the machine's.
    pub async fn with_clocks_off(seconds: &[f64]) -> Self {
        let seconds = seconds.iter();
        let configs = seconds.map(|seconds| RedisServer::config().clock_off(*seconds));
        Self::start_each(&configs.collect::<Vec<_>>(), false).await
    }

    async fn start_each(configs: &[RedisConfig], replicas: bool) -> Self {
        let masters = configs.len();
        let start = async |config: &RedisConfig| {
            let bus = ports::free_port();
            let server = config.clone().args([
                "--cluster-enabled".to_owned(),
                "yes".to_owned(),
                "--cluster-port".to_owned(),
                bus.to_string(),
                // Without replicas, a pause of the machine must have no effect.
                "--cluster-node-timeout".to_owned(),
                if replicas { "2000" } else { "15000" }.to_owned(),
                "--cluster-require-full-coverage".to_owned(),
                "no".to_owned(),
                "--cluster-replica-validity-factor".to_owned(),
                "0".to_owned(),
                "--cluster-replica-no-failover".to_owned(),
                "yes".to_owned(),
            ]);
            (server.start().await, bus)
        };
        let mut all = Vec::new();
        let rounds = if replicas { 2 } else { 1 };
        for at in 0..masters * rounds {
            all.push(start(&configs[at % masters]).await);
        }
        let bounds = |at: usize| u16::try_from(usize::from(SLOTS) * at / masters).expect("a slot");
        let mut first = Admin::connect(&all[0].0).await;
        for (at, (server, bus)) in all.iter().enumerate() {
            if at < masters {
                let (begin, end) = (bounds(at), bounds(at + 1) - 1);
                let range = [
                    "CLUSTER",
                    "ADDSLOTSRANGE",
                    &begin.to_string(),
                    &end.to_string(),
                ];
                let mut admin = Admin::connect(server).await;
                admin.ok(&range).await;
                // Without distinct epochs the masters would have to settle them first. Meanwhile they refuse
                // their votes to a replica that has not heard of the result when its master dies.
                let epoch = (at + 1).to_string();
                admin.ok(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
            }
            let (port, bus) = (server.port().to_string(), bus.to_string());
            first
                .ok(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])
                .await;
        }
        let mut servers: Vec<_> = all.into_iter().map(|(server, _)| server).collect();
        let replicas = servers.split_off(masters);
        let cluster = Self {
            masters: servers,
            replicas,
        };
        cluster.join().await;
        cluster
    }

    /// Waits until all nodes know one another.
    async fn join(&self) {
        let known = self.servers().count().to_string();
        for server in self.servers() {
            let mut admin = Admin::connect(server).await;
            let count = async || info(&mut admin, "cluster_known_nodes").await == known;
            eventually(LIMIT, "the nodes know one another", count).await;
        }
        for (master, replica) in self.masters.iter().zip(&self.replicas) {
            let id = Admin::connect(master)
                .await
                .string(&["CLUSTER", "MYID"])
                .await;
            let id = id.expect("a node has an id");
            let mut admin = Admin::connect(replica).await;
            let follows = async || {
                admin.command(&["CLUSTER", "REPLICATE", &id]).await == Resp::Simple("OK".into())
            };
            eventually(LIMIT, "the replica knows its master", follows).await;
        }
        for replica in &self.replicas {
            replica.in_sync().await;
        }
        let mut epochs: Vec<_> = (1..=self.masters.len())
            .map(|epoch| epoch.to_string())
            .collect();
        epochs.sort();
        for server in self.servers() {
            let mut admin = Admin::connect(server).await;
            let ok = async || {
                info(&mut admin, "cluster_state").await == "ok"
                    && info(&mut admin, "cluster_slots_ok").await == SLOTS.to_string()
            };
            eventually(LIMIT, "the cluster is up", ok).await;
            let agrees = async || config_epochs(&mut admin).await == epochs;
            eventually(LIMIT, "the nodes agree on the masters' epochs", agrees).await;
        }
    }

    /// Lets a replica take over from now on if its master is away.
    pub async fn allow_failover(&self) {
        for replica in &self.replicas {
            let mut admin = Admin::connect(replica).await;
            admin
                .ok(&["CONFIG", "SET", "cluster-replica-no-failover", "no"])
                .await;
        }
    }

    /// Returns all nodes.
    pub fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        self.masters.iter().chain(&self.replicas)
    }

    /// Returns a `redis-cluster://` URL with the first masters.
    pub fn url(&self) -> String {
        let hosts = self.masters.iter().map(|server| {
            let password = server.password().map(|word| format!(":{word}@"));
            (password.unwrap_or_default(), server.port())
        });
        let (passwords, ports): (Vec<_>, Vec<_>) = hosts.unzip();
        let hosts: Vec<_> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        format!("redis-cluster://{}{}", passwords[0], hosts.join(","))
    }

    /// Returns a `rediss-cluster://` URL with the first masters, for a client that trusts this CA.
    pub fn tls_url(&self, ca: &Path) -> String {
        let hosts = self.masters.iter().map(RedisServer::tls_port);
        let hosts: Vec<_> = hosts.map(|port| format!("127.0.0.1:{port}")).collect();
        format!("rediss-cluster://{}?ca={}", hosts.join(","), ca.display())
    }

    /// Returns the slot of a key.
    pub async fn slot(&self, key: &str) -> u16 {
        let mut admin = Admin::connect(self.alive()).await;
        let slot = admin.int(&["CLUSTER", "KEYSLOT", key]).await;
        u16::try_from(slot).expect("a slot")
    }

    /// Returns the name of a lock in the default namespace that is at this master, and its slot.
    pub async fn name_at(&self, master: usize) -> (String, u16) {
        for number in 0.. {
            let name = format!("at-{master}-{number}");
            let slot = self.slot(&format!("{{leasehold:{name}}}")).await;
            if self.master_of(slot).await == master {
                return (name, slot);
            }
        }
        unreachable!("each master has slots")
    }

    /// Returns the first master that serves a slot.
    pub async fn master_of(&self, slot: u16) -> usize {
        let port = self.port_of(slot).await;
        let at = self.masters.iter().position(|server| server.port() == port);
        at.expect("one of the first masters serves the slot")
    }

    /// Returns the port of the node that serves a slot.
    pub async fn port_of(&self, slot: u16) -> u16 {
        let mut admin = Admin::connect(self.alive()).await;
        let port = port_of(&mut admin, slot).await;
        port.unwrap_or_else(|| panic!("no node serves the slot {slot}"))
    }

    fn alive(&self) -> &RedisServer {
        let mut alive = self.servers().filter(|server| server.is_running());
        alive.next().expect("a node is running")
    }

    /// Begins to move a slot. Returns a connection to the master that has it.
    async fn begin_to_move(&self, slot: &str, from: &RedisServer, to: &RedisServer) -> Admin {
        let (mut source, mut target) = (Admin::connect(from).await, Admin::connect(to).await);
        let source_id = source.string(&["CLUSTER", "MYID"]).await.expect("an id");
        let target_id = target.string(&["CLUSTER", "MYID"]).await.expect("an id");
        target
            .ok(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &source_id])
            .await;
        source
            .ok(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &target_id])
            .await;
        source
    }

    /// Moves one key of a slot, and stops there. [`Self::give_slot`] completes the move.
    pub async fn half_move_slot(&self, slot: u16, from: usize, to: usize, key: &str) {
        let (from, to) = (&self.masters[from], &self.masters[to]);
        let mut source = self.begin_to_move(&slot.to_string(), from, to).await;
        let port = to.port().to_string();
        source
            .ok(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"])
            .await;
    }

    /// Moves a slot with its keys from one master to another, as `redis-cli --cluster` does.
    pub async fn move_slot(&self, slot: u16, from: usize, to: usize) {
        let (from, to) = (&self.masters[from], &self.masters[to]);
        let slot = slot.to_string();
        let mut source = self.begin_to_move(&slot, from, to).await;
        loop {
            let get = ["CLUSTER", "GETKEYSINSLOT", &slot, "100"];
            let Resp::Array(keys) = source.command(&get).await else {
                panic!("CLUSTER GETKEYSINSLOT answers with an array");
            };
            if keys.is_empty() {
                break;
            }
            let port = to.port().to_string();
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000"].map(str::to_owned);
            let password = to
                .password()
                .map(|word| vec!["AUTH".to_owned(), word.to_owned()]);
            let keys = keys.iter().filter_map(Resp::as_string);
            let command: Vec<String> = migrate
                .into_iter()
                .chain(password.unwrap_or_default())
                .chain(["KEYS".to_owned()])
                .chain(keys)
                .collect();
            let moved = source.command(&command).await;
            assert!(
                matches!(&moved, Resp::Simple(said) if said == "OK" || said == "NOKEY"),
                "MIGRATE: {moved:?}"
            );
        }
        self.give_slot(&slot, to).await;
    }

    /// Tells all nodes the owner of a slot, and waits until they agree: a stale message of the cluster's own
    /// could take the slot away again.
    pub async fn give_slot(&self, slot: &str, to: &RedisServer) {
        let id = Admin::connect(to).await.string(&["CLUSTER", "MYID"]).await;
        let id = id.expect("a node has an id");
        let alive = self.servers().filter(|server| server.is_running());
        let mut admins = Vec::new();
        for server in alive {
            admins.push((server.port(), Admin::connect(server).await));
        }
        // The new owner comes first, so that no node reports the slot as unassigned.
        admins.sort_by_key(|(port, _)| *port != to.port());
        for (_, admin) in &mut admins {
            // Replicas refuse this, and hear of it from their masters.
            admin
                .command(&["CLUSTER", "SETSLOT", slot, "NODE", &id])
                .await;
        }
        let number = slot.parse().expect("a slot");
        let agree = async || {
            let mut epochs = Vec::new();
            for (_, admin) in &mut admins {
                if port_of(admin, number).await != Some(to.port()) {
                    return false;
                }
                epochs.push(info(admin, "cluster_current_epoch").await);
            }
            epochs.windows(2).all(|pair| pair[0] == pair[1])
        };
        eventually(LIMIT, "the nodes agree on the owner of the slot", agree).await;
    }
}

/// Returns the port of the master that serves a slot, by this node's report.
async fn port_of(admin: &mut Admin, slot: u16) -> Option<u16> {
    let Resp::Array(stretches) = admin.command(&["CLUSTER", "SLOTS"]).await else {
        panic!("CLUSTER SLOTS answers with an array");
    };
    stretches.iter().find_map(|stretch| {
        let Resp::Array(stretch) = stretch else {
            return None;
        };
        let bound = |at: usize| stretch.get(at)?.as_int();
        let Resp::Array(node) = stretch.get(2)? else {
            return None;
        };
        let has = (bound(0)?..=bound(1)?).contains(&i64::from(slot));
        has.then(|| u16::try_from(node.get(1)?.as_int()?).ok())?
    })
}

/// Returns the masters' epochs in order, as this node knows them; empty until it knows all nodes.
async fn config_epochs(admin: &mut Admin) -> Vec<String> {
    let nodes = admin
        .string(&["CLUSTER", "NODES"])
        .await
        .unwrap_or_default();
    let known = nodes
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let known: Vec<_> = known.filter(|words| words.len() > 7).collect();
    if known
        .iter()
        .any(|words| words[2].contains("handshake") || words[7] != "connected")
    {
        return Vec::new();
    }
    let masters = known.iter().filter(|words| words[2].contains("master"));
    let mut epochs: Vec<_> = masters.map(|words| words[6].to_owned()).collect();
    epochs.sort();
    epochs
}

async fn info(admin: &mut Admin, field: &str) -> String {
    let info = admin.string(&["CLUSTER", "INFO"]).await.unwrap_or_default();
    let value = info
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}
