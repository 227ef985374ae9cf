//! A Redis Cluster: one store for each master, with a clock of its own in the engine, and the slot map.

mod keep;
mod mixed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use leasehold_engine::engine::{ServerId, Suspicion};
use leasehold_engine::protocol::{BatchReply, Durability, LockKey, Op, Reply};
use leasehold_engine::time::Timestamp;
use leasehold_engine::{Error, ErrorKind, Finding};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::remote::Remote;
use super::sink::{NodeLink, ServerSink};
use super::{Driver, Input};
use crate::adapter::fred::{Fred, Nodes};
use crate::adapter::slots::{MOST_NODES, Map, Redirection, is_about_slots};
use crate::adapter::{Adapter, Way, is_away};
use crate::url::Node;

/// The most redirections that one attempt follows.
const MOST_REDIRECTIONS: usize = 3;

pub(crate) struct Cluster {
    nodes: Nodes,
    state: Mutex<State>,
    /// Notified when the slot map may be out of date.
    doubt: Arc<Notify>,
    driver: OnceLock<Weak<Driver>>,
    keeper: OnceLock<AbortHandle>,
    /// Rotates the node that is asked first.
    turn: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// The engine's numbers of the nodes, from 1 on. The number of a node that left is reused.
    numbers: BTreeMap<Node, ServerId>,
    members: BTreeMap<ServerId, Arc<Member>>,
    map: Map,
    /// True if a redirection has contradicted the map since it was read.
    is_amended: bool,
    /// The nodes whose pushes the engine wants to hear.
    wanted: BTreeSet<ServerId>,
}

/// A node that serves slots, or has served some.
struct Member {
    server: ServerId,
    node: Node,
    client: Arc<Fred>,
    remote: Arc<Remote>,
    link: Arc<NodeLink>,
    /// Until then, batches of several slots are split at this node.
    apart: Mutex<Timestamp>,
}

/// A node's client, and its store.
type Connected = (Arc<Fred>, Remote);

/// Connecting.
impl Cluster {
    pub(super) async fn connect(nodes: Nodes) -> Result<Self, Error> {
        let (seed, client, map) = nodes.find().await?;
        let cluster = Self::new(nodes);
        let client = Arc::new(client);
        let mut seed = Some(client).map(|client| (seed, client));
        if seed.as_ref().is_some_and(|(node, _)| !map.has(node)) {
            // The seed is a replica, or known by another address.
            let unused = seed.take();
            tokio::spawn(async move {
                if let Some((_, client)) = unused {
                    client.close().await;
                }
            });
        }
        let connecting = map.nodes().into_iter().map(|node| {
            let seed = seed.take_if(|(seed, _)| seed == node);
            cluster.connect_node(node, seed.map(|(_, client)| client))
        });
        let connected = futures::future::join_all(connecting.collect::<Vec<_>>()).await;
        let away = connected.iter().filter_map(|node| node.as_ref().err());
        let away: Vec<Error> = away.cloned().collect();
        if let Some(error) = away.iter().find(|error| !is_away(error)) {
            return Err(error.clone());
        }
        if let Some(error) = away.first().filter(|_| away.len() == connected.len()) {
            return Err(error.clone());
        }
        {
            let state = &mut *cluster.state();
            for (node, connected) in map.nodes().into_iter().zip(connected) {
                let is_up = connected.is_ok();
                let connected = match connected {
                    Ok(connected) => connected,
                    // The node may come up later.
                    Err(_) => cluster.connect_node_lazily(node)?,
                };
                cluster.add(state, node, connected, is_up)?;
            }
            state.map = map;
        }
        Ok(cluster)
    }

    /// Creates a store that looks for its nodes once its links are [watched](Self::watch_links), with retries.
    pub(super) fn connect_lazily(nodes: Nodes) -> Result<Self, Error> {
        let cluster = Self::new(nodes);
        // Invalid settings are an error now.
        for seed in &cluster.nodes.seeds {
            cluster.connect_node_lazily(seed)?;
        }
        Ok(cluster)
    }

    fn new(nodes: Nodes) -> Self {
        Self {
            nodes,
            state: Mutex::default(),
            doubt: Arc::default(),
            driver: OnceLock::new(),
            keeper: OnceLock::new(),
            turn: AtomicUsize::new(0),
        }
    }

    async fn connect_node(&self, node: &Node, seed: Option<Arc<Fred>>) -> Result<Connected, Error> {
        let target = self.nodes.node(node);
        let (shown, timeout) = (target.shown.clone(), target.timeout);
        let Some(client) = seed else {
            let (client, remote) = Remote::unconnected(target, true, true)?;
            remote.open(&client, &shown).await?;
            return Ok((client, remote));
        };
        let remote = Remote::of_fred(client.clone(), true, timeout);
        let checked = remote.check().await;
        checked.map_err(|error| error.of(&shown))?;
        Ok((client, remote))
    }

    fn connect_node_lazily(&self, node: &Node) -> Result<Connected, Error> {
        Remote::unconnected(self.nodes.node(node), true, false)
    }

    /// Returns the inputs that the engine starts with.
    pub(super) fn opening(&self) -> Vec<Input> {
        let state = self.state();
        let members = state.members.values();
        let connected = members.filter(|member| member.link.is_up());
        let connected = connected.map(|member| Input::Connected {
            server: member.server,
        });
        let mut inputs = state.routes();
        inputs.extend(connected);
        inputs
    }

    /// Reports changes of the links and of the slot map, in the background.
    pub(super) fn watch_links(self: &Arc<Self>, driver: &Arc<Driver>) {
        // Nodes that are added from now on are watched when they are added.
        let members = self.members();
        let _ = self.driver.set(Arc::downgrade(driver));
        for member in members {
            member.remote.watch_link(driver, member.sink(driver));
        }
        let keeper = driver.runtime.spawn(keep::keep(self.clone()));
        let _ = self.keeper.set(keeper.abort_handle());
    }
}

/// The nodes.
impl Cluster {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn member(&self, server: ServerId) -> Option<Arc<Member>> {
        self.state().members.get(&server).cloned()
    }

    fn members(&self) -> Vec<Arc<Member>> {
        self.state().members.values().cloned().collect()
    }

    fn driver(&self) -> Option<Arc<Driver>> {
        self.driver.get()?.upgrade()
    }

    fn add(
        &self,
        state: &mut State,
        node: &Node,
        (client, remote): Connected,
        is_up: bool,
    ) -> Result<Arc<Member>, Error> {
        if state.members.len() >= MOST_NODES {
            let message =
                format!("the cluster has more than {MOST_NODES} masters, which is not supported");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let is_free = |server: &ServerId| !state.members.contains_key(server);
        let mut numbers = (1..u32::MAX).map(ServerId);
        let server = numbers.find(is_free).unwrap_or(ServerId::ONLY);
        state.numbers.insert(node.clone(), server);
        let member = Arc::new(Member {
            server,
            node: node.clone(),
            client,
            remote: Arc::new(remote),
            link: Arc::new(NodeLink::new(is_up, self.doubt.clone())),
            apart: Mutex::new(Timestamp::from_nanos(0)),
        });
        state.members.insert(server, member.clone());
        Ok(member)
    }

    /// Returns the number of a node. Connects to a new node in the background.
    fn server_at(&self, node: &Node) -> Option<ServerId> {
        let driver = self.driver()?;
        let (added, is_wanted) = {
            let state = &mut *self.state();
            let known = state.numbers.get(node);
            let member = known.and_then(|server| state.members.get(server));
            if let Some(member) = member {
                return Some(member.server);
            }
            let connected = self.connect_node_lazily(node);
            let added = connected.and_then(|connected| self.add(state, node, connected, false));
            let added = added
                .inspect_err(|error| {
                    tracing::warn!(target: "leasehold", %error, "a cluster node could not be connected to");
                })
                .ok()?;
            let is_wanted = state.wanted.contains(&added.server);
            (added, is_wanted)
        };
        added.remote.watch_link(&driver, added.sink(&driver));
        if is_wanted {
            added.remote.subscribe(&driver, added.sink(&driver));
        }
        Some(added.server)
    }
}

impl State {
    /// Returns the slot map as inputs for the engine.
    fn routes(&self) -> Vec<Input> {
        let mut routes: Vec<_> = self
            .map
            .0
            .iter()
            .filter_map(|stretch| {
                let server = *self.numbers.get(&stretch.node)?;
                let slots = stretch.first..=stretch.last;
                Some(Input::Slots { slots, server })
            })
            .collect();
        let (server, gaps) = (ServerId::ONLY, self.map.gaps());
        let is_whole = gaps.is_empty();
        routes.extend(gaps.into_iter().map(|(first, last)| Input::Slots {
            slots: first..=last,
            server,
        }));
        if !is_whole {
            routes.push(nobody(Error::new(
                ErrorKind::Unavailable,
                "the store cannot be reached: no node of the cluster serves the lock's slot now",
            )));
        }
        routes
    }
}

/// Returns the input that says why slots without a master cannot be reached.
fn nobody(error: Error) -> Input {
    let server = ServerId::ONLY;
    Input::Disconnected { server, error }
}

impl Member {
    fn sink(&self, driver: &Arc<Driver>) -> ServerSink {
        ServerSink::of_node(driver, self.server, self.link.clone())
    }

    /// Subscribes to the channel of each lock that now has a waiter of this locker.
    fn listen_where_waiting(&self, batch: &[Op], reply: &Result<BatchReply, Error>) {
        let replies = reply.as_ref().map(|reply| &*reply.replies);
        for (op, reply) in batch.iter().zip(replies.unwrap_or_default()) {
            if let Ok(Reply::Busy { place: Some(_), .. }) = reply
                && let Some(key) = op.command.key()
            {
                self.client.listen_at_shard(key);
            }
        }
    }
}

/// Executing batches, and background tasks.
impl Cluster {
    /// Executes a batch of operations of one slot, and follows redirections. Returns the server that answered, too.
    pub(super) async fn execute_in_slot(
        &self,
        asked: ServerId,
        (batch, durability): (&[Op], Option<&Durability>),
        give_up: Timestamp,
    ) -> (ServerId, Result<BatchReply, Error>) {
        let (mut server, mut way) = (asked, Way::Plain);
        let mut restated: Option<Vec<Op>> = None;
        for _ in 0..=MOST_REDIRECTIONS {
            let Some(member) = self.member(server) else {
                let message = "the store cannot be reached: the node has left the cluster";
                return (server, Err(Error::new(ErrorKind::Unavailable, message)));
            };
            let (remote, batch) = (&member.remote, restated.as_deref().unwrap_or(batch));
            let answer = if let Some(durability) = durability {
                Box::pin(remote.ask_durably((batch, durability), give_up, way)).await
            } else {
                remote.ask(batch, give_up, way).await
            };
            let error = match answer {
                Ok(reply) => {
                    member.listen_where_waiting(batch, &reply);
                    return (server, reply);
                }
                Err(error) => error,
            };
            let Some(redirection) = Redirection::read(error.said(), &member.node) else {
                if is_about_slots(error.said()) {
                    self.doubt.notify_one();
                }
                return (server, Err(error.into()));
            };
            let Some(next) = self.follow(&redirection) else {
                break;
            };
            restated = self.restated(batch, server, next);
            if restated.is_none() {
                break;
            }
            way = if redirection.once {
                Way::Asking
            } else {
                Way::Plain
            };
            server = next;
        }
        let message = "the lock's cluster slot has moved; the next attempt asks its new node";
        (asked, Err(Error::new(ErrorKind::Unavailable, message)))
    }

    /// Applies a redirection to the slot map.
    fn follow(&self, redirection: &Redirection) -> Option<ServerId> {
        let server = self.server_at(&redirection.to)?;
        if !redirection.once {
            self.state().is_amended = true;
            let slots = redirection.slot..=redirection.slot;
            self.driver()?.feed(Input::Slots { slots, server });
            self.doubt.notify_one();
        }
        Some(server)
    }

    /// Translates the `not_after` of operations to another server's clock. Returns `None` if its clock is not known.
    fn restated(&self, batch: &[Op], from: ServerId, to: ServerId) -> Option<Vec<Op>> {
        let driver = self.driver()?;
        let state = driver.state();
        let ops = batch.iter().map(|op| {
            let not_after = state.engine.no_later(op.not_after, from, to)?;
            Some(Op {
                command: op.command.clone(),
                not_after,
            })
        });
        ops.collect()
    }

    /// Returns the findings so far, each once.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for member in self.members() {
            for finding in member.remote.findings() {
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
        findings
    }

    /// Returns the nodes that have locks.
    pub(super) fn walked(&self) -> Vec<ServerId> {
        let state = self.state();
        let nodes = state.map.nodes();
        let servers = nodes.into_iter().filter_map(|node| state.numbers.get(node));
        servers.copied().collect()
    }

    pub(super) fn subscribe(&self, driver: &Arc<Driver>, server: ServerId) {
        let member = {
            let state = &mut *self.state();
            state.wanted.insert(server);
            state.members.get(&server).cloned()
        };
        if let Some(member) = member {
            member.remote.subscribe(driver, member.sink(driver));
        }
    }

    pub(super) fn watch(&self, keys: Vec<LockKey>, driver: &Arc<Driver>, server: ServerId) {
        if let Some(member) = self.member(server) {
            member.remote.watch(keys, driver, member.sink(driver));
        }
    }

    pub(super) fn suspect(&self, server: ServerId, why: Suspicion, runtime: &Handle) {
        self.doubt.notify_one();
        if let Some(member) = self.member(server) {
            member.remote.suspect(why, runtime);
        }
    }

    pub(super) async fn close(&self) {
        self.keeper.get().inspect(|keeper| keeper.abort());
        let members = self.members();
        let closing = members.iter().map(|member| member.remote.close());
        futures::future::join_all(closing).await;
    }
}
