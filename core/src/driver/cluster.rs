//! A Redis Cluster: a connection to each of its masters, with a clock of its own in the engine, and which
//! of them serves which slots.

mod keep;
mod map;
mod mixed;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use ::fred::clients::Client;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

pub(super) use self::target::ClusterTarget;

use self::map::{MOST_NODES, Map, Redirection};
use super::fred::FredStore;
use super::link::Way;
use super::seat::{Alarm, Seat};
use super::url::Node;
use super::{Driver, Input};
use crate::engine::{ServerId, Suspicion};
use crate::error::{Error, ErrorKind};
use crate::finding::Finding;
use crate::protocol::{self, BatchReply, Durability, LockKey, Op, Reply};
use crate::time::Timestamp;

/// How often an operation is sent on in one attempt.
const MOST_REDIRECTIONS: usize = 3;

pub(crate) struct Cluster {
    target: ClusterTarget,
    state: Mutex<State>,
    /// Rings when the map may be out of date.
    bell: Arc<Notify>,
    driver: OnceLock<Weak<Driver>>,
    keeper: OnceLock<AbortHandle>,
    /// Whom to ask first.
    turn: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// As the engine knows them, from 1 on. The number of one that has left is free for another.
    numbers: BTreeMap<Node, ServerId>,
    members: BTreeMap<ServerId, Arc<Member>>,
    map: Map,
    /// Whether a redirection said something else since than the map.
    is_amended: bool,
    /// Whose pushes the engine wants to hear.
    wanted: BTreeSet<ServerId>,
}

/// A node that serves slots, or did.
struct Member {
    server: ServerId,
    node: Node,
    store: FredStore,
    alarm: Arc<Alarm>,
    /// Until when it is asked for each slot by itself.
    apart: Mutex<Timestamp>,
}

/// Connecting.
impl Cluster {
    pub(super) async fn connect(target: ClusterTarget) -> Result<Self, Error> {
        let (seed, store, map) = target.find().await?;
        let cluster = Self::new(target);
        let mut seed = Some(store).map(|store| (seed, store));
        if seed.as_ref().is_some_and(|(node, _)| !map.has(node)) {
            // It is a replica, or known by another address.
            let unused = seed.take();
            tokio::spawn(async move {
                if let Some((_, store)) = unused {
                    store.close().await;
                }
            });
        }
        let connecting = map.nodes().into_iter().map(|node| {
            let seed = seed.take_if(|(seed, _)| seed == node);
            cluster.connect_node(node, seed.map(|(_, store)| store))
        });
        let connected = futures::future::join_all(connecting.collect::<Vec<_>>()).await;
        let away = connected.iter().filter_map(|store| store.as_ref().err());
        let away: Vec<Error> = away.cloned().collect();
        if let Some(error) = away.iter().find(|error| !is_away(error)) {
            return Err(error.clone());
        }
        if let Some(error) = away.first().filter(|_| away.len() == connected.len()) {
            return Err(error.clone());
        }
        {
            let state = &mut *cluster.state();
            for (node, store) in map.nodes().into_iter().zip(connected) {
                let is_up = store.is_ok();
                let store = match store {
                    Ok(store) => store,
                    // It may come later.
                    Err(_) => FredStore::connect_lazily(cluster.target.node(node))?,
                };
                cluster.add(state, node, store, is_up)?;
            }
            state.map = map;
        }
        Ok(cluster)
    }

    /// Looks for its nodes once it is [followed](Self::watch_links), again and again until one is there.
    pub(super) fn connect_lazily(target: ClusterTarget) -> Result<Self, Error> {
        // What is wrong with the settings is an error now.
        for seed in &target.seeds {
            FredStore::connect_lazily(target.node(seed))?;
        }
        Ok(Self::new(target))
    }

    /// With the configuration of a client of the program's.
    pub(super) async fn with_client(client: &Client, timeout: Duration) -> Result<Self, Error> {
        Self::connect(ClusterTarget::of(client, timeout)).await
    }

    fn new(target: ClusterTarget) -> Self {
        Self {
            target,
            state: Mutex::default(),
            bell: Arc::default(),
            driver: OnceLock::new(),
            keeper: OnceLock::new(),
            turn: AtomicUsize::new(0),
        }
    }

    async fn connect_node(&self, node: &Node, seed: Option<FredStore>) -> Result<FredStore, Error> {
        let target = self.target.node(node);
        let Some(store) = seed else {
            return FredStore::connect(target).await;
        };
        let checked = store.link().check().await;
        checked.map_err(|error| error.of(&target.shown))?;
        Ok(store)
    }

    /// What the engine has to hear first.
    pub(super) fn opening(&self) -> Vec<Input> {
        let state = self.state();
        let members = state.members.values();
        let connected = members.filter(|member| member.alarm.is_up());
        let connected = connected.map(|member| Input::Connected {
            server: member.server,
        });
        let mut inputs = state.routes();
        inputs.extend(connected);
        inputs
    }

    /// Follows its links, and who serves what.
    pub(super) fn watch_links(self: &Arc<Self>, driver: &Arc<Driver>) {
        // Those that come from now on are followed as they come.
        let members = self.members();
        let _ = self.driver.set(Arc::downgrade(driver));
        for member in members {
            member.store.watch_link(driver, member.seat(driver));
        }
        let keeper = driver.runtime.spawn(keep::keep(self.clone()));
        let _ = self.keeper.set(keeper.abort_handle());
    }
}

/// Its members.
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
        store: FredStore,
        is_up: bool,
    ) -> Result<Arc<Member>, Error> {
        if state.members.len() >= MOST_NODES {
            let message = "the cluster has too many nodes";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let is_free = |server: &ServerId| !state.members.contains_key(server);
        let mut numbers = (1..u32::MAX).map(ServerId);
        let server = numbers.find(is_free).unwrap_or(ServerId::ONLY);
        state.numbers.insert(node.clone(), server);
        let member = Arc::new(Member {
            server,
            node: node.clone(),
            store,
            alarm: Arc::new(Alarm::new(is_up, self.bell.clone())),
            apart: Mutex::new(Timestamp::from_nanos(0)),
        });
        state.members.insert(server, member.clone());
        Ok(member)
    }

    /// The number of a node; one that is new is connected to in the background.
    fn server_at(&self, node: &Node) -> Option<ServerId> {
        let driver = self.driver()?;
        let (added, is_wanted) = {
            let state = &mut *self.state();
            let known = state.numbers.get(node);
            let member = known.and_then(|server| state.members.get(server));
            if let Some(member) = member {
                return Some(member.server);
            }
            let store = FredStore::connect_lazily(self.target.node(node));
            let added = store.and_then(|store| self.add(state, node, store, false));
            let added = added
                .inspect_err(|error| {
                    tracing::warn!(target: "leasehold", %error, "a node cannot be connected to");
                })
                .ok()?;
            let is_wanted = state.wanted.contains(&added.server);
            (added, is_wanted)
        };
        added.store.watch_link(&driver, added.seat(&driver));
        if is_wanted {
            added.store.subscribe(&driver, added.seat(&driver));
        }
        Some(added.server)
    }
}

impl State {
    /// Who serves which slots, as the engine takes it.
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

/// Whoever waits for slots that nobody serves waits for this.
fn nobody(error: Error) -> Input {
    let server = ServerId::ONLY;
    Input::Disconnected { server, error }
}

impl Member {
    fn seat(&self, driver: &Arc<Driver>) -> Seat {
        Seat::of_node(driver, self.server, self.alarm.clone())
    }

    /// Listens at the shard of each lock that has a place in line now.
    fn listen_where_waiting(&self, batch: &[Op], reply: &Result<BatchReply, Error>) {
        let replies = reply.as_ref().map(|reply| &*reply.replies);
        for (op, reply) in batch.iter().zip(replies.unwrap_or_default()) {
            if let Ok(Reply::Busy { place: Some(_), .. }) = reply
                && let Some(key) = op.command.key()
            {
                self.store.listen_at_shard(key);
            }
        }
    }
}

/// What a store does.
impl Cluster {
    /// Executes a batch of operations of one slot, which may count only with these copies. Returns who answered,
    /// too.
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
            let link = member.store.link();
            let batch = restated.as_deref().unwrap_or(batch);
            let answer = if let Some(durability) = durability {
                Box::pin(link.ask_durably(batch, durability, give_up, way)).await
            } else {
                let answer = link.ask(batch, give_up, way).await;
                answer.map(|answer| protocol::decode(batch, &answer))
            };
            let error = match answer {
                Ok(reply) => {
                    member.listen_where_waiting(batch, &reply);
                    return (server, reply);
                }
                Err(error) => error,
            };
            let Some(redirection) = Redirection::read(error.details(), &member.node) else {
                if error.is_cluster() {
                    self.bell.notify_one();
                }
                return (server, Err(link.secrets.convert(&error)));
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
        let message = "the lock's slot of the cluster has moved; its node is asked next";
        (asked, Err(Error::new(ErrorKind::Unavailable, message)))
    }

    /// Takes in where a node says that a slot is.
    fn follow(&self, redirection: &Redirection) -> Option<ServerId> {
        let server = self.server_at(&redirection.to)?;
        if !redirection.once {
            self.state().is_amended = true;
            let slots = redirection.slot..=redirection.slot;
            self.driver()?.feed(Input::Slots { slots, server });
            self.bell.notify_one();
        }
        Some(server)
    }

    /// The same operations with the end of their time by another server's clock; nothing if that is not known.
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

    /// What connecting found, and what was found later.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for member in self.members() {
            for finding in member.store.findings() {
                if !findings.contains(finding) {
                    findings.push(finding.clone());
                }
            }
        }
        findings
    }

    /// Those that have locks.
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
            member.store.subscribe(driver, member.seat(driver));
        }
    }

    pub(super) fn watch(&self, keys: Vec<LockKey>, driver: &Arc<Driver>, server: ServerId) {
        if let Some(member) = self.member(server) {
            member.store.watch(keys, driver, member.seat(driver));
        }
    }

    pub(super) fn suspect(&self, server: ServerId, why: Suspicion, runtime: &Handle) {
        self.bell.notify_one();
        if let Some(member) = self.member(server) {
            member.store.suspect(why, runtime);
        }
    }

    pub(super) async fn close(&self) {
        self.keeper.get().inspect(|keeper| keeper.abort());
        let members = self.members();
        let closing = members.iter().map(|member| member.store.close());
        futures::future::join_all(closing).await;
    }
}

/// Whether it may be there later; anything else is to be mended first.
pub(super) fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout)
}
