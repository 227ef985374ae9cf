//! The servers of the store, each with its own clock.
//!
//! A store is a lone server; the servers of a cluster, which share the slots and move them while hosts ask;
//! or the members of a quorum, which all have every name.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use leasehold_engine::MemoryServer;
use leasehold_engine::engine::{Input, ServerId};
use leasehold_engine::protocol::{Claim, LeaseId, LockKey, Op};
use leasehold_engine::time::ServerTime;

use crate::checks::Stored;
use crate::clock::{MILLI, Moment, ServerClock};
use crate::host::{Sent, SharedSent};
use crate::sabotage::Sabotage;
use crate::world::{Happening, Process, World};

#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) store: MemoryServer,
    pub(crate) clock: ServerClock,
    /// How much longer its locks live since failovers set its clock back.
    pub(crate) behind: Moment,
    /// How far its clock is behind because it began late, in microseconds; it is set right soon.
    pub(crate) late_by: u64,
    /// Until when no client can reach it.
    pub(crate) out_until: Moment,
    /// True while it does nothing; its inbox collects what arrives meanwhile.
    pub(crate) frozen: bool,
    pub(crate) inbox: VecDeque<SharedSent>,
    /// The data that it would restart with.
    pub(crate) saved: Option<MemoryServer>,
    /// When it last forgot something.
    pub(crate) lost: Option<Moment>,
    /// True if it is known to have forgotten nothing since.
    pub(crate) is_known: bool,
    /// The claims of the waiters.
    pub(crate) claims: BTreeMap<LeaseId, Claim>,
}

impl Server {
    pub(crate) fn new(clock: ServerClock) -> Self {
        Self {
            clock,
            ..Self::default()
        }
    }
}

/// How often a client that connects to a server of a cluster learns the slots, in percent.
const SLOTS_TOLD: u64 = 60;

/// The server of each slot, as an engine was told. The latest report holds.
#[derive(Debug, Default)]
pub(crate) struct Routes(Vec<(RangeInclusive<u16>, ServerId)>);

impl Routes {
    pub(crate) fn learn(&mut self, slots: RangeInclusive<u16>, server: ServerId) {
        self.0.retain(|(known, _)| *known != slots);
        self.0.push((slots, server));
    }

    fn server(&self, slot: u16) -> ServerId {
        let mut known = self.0.iter().rev();
        let known = known.find(|(slots, _)| slots.contains(&slot));
        known.map_or(ServerId::ONLY, |(_, server)| *server)
    }
}

/// The server that is asked for a name.
impl World {
    pub(crate) fn is_cluster(&self) -> bool {
        self.plan.is_cluster()
    }

    /// Returns the name of a server in a host's engine: its place in the host's list. A cluster counts from
    /// 1, since none of its servers has the name of a lone server.
    pub(crate) fn name_of(&self, host: usize, server: usize) -> ServerId {
        let mut list = self.hosts[host].list.iter();
        let place = list.position(|listed| *listed == server);
        let place = place.expect("each host lists every server") + usize::from(self.is_cluster());
        ServerId(u32::try_from(place).expect("there are few servers"))
    }

    /// Returns the server that an engine means, if it names a certain one.
    pub(crate) fn index_of(&self, host: usize, server: ServerId) -> Option<usize> {
        let place = server.0.checked_sub(u32::from(self.is_cluster()))?;
        let list = &self.hosts[host].list;
        list.get(usize::try_from(place).ok()?).copied()
    }

    /// True if a server has a lock's keys: each member of a quorum has them all.
    pub(crate) fn serves(&self, server: usize, key: &LockKey) -> bool {
        self.plan.is_quorum() || self.server_of(key) == server
    }

    /// Returns the server that has a lock's keys.
    pub(crate) fn server_of(&self, key: &LockKey) -> usize {
        if !self.is_cluster() {
            return 0;
        }
        let slot = key.slot();
        let moved = self.moved.get(&slot).copied();
        moved
            .unwrap_or_else(|| usize::from(slot) * self.servers.len() / usize::from(LockKey::SLOTS))
    }

    pub(crate) fn time_of(&self, server: usize) -> ServerTime {
        self.servers[server].clock.at(self.now)
    }

    /// Returns the time of the server that has a lock's keys.
    pub(crate) fn time_at(&self, key: &LockKey) -> ServerTime {
        self.time_of(self.server_of(key))
    }

    pub(crate) fn store_of(&self, key: &LockKey) -> &MemoryServer {
        &self.servers[self.server_of(key)].store
    }

    /// Returns the holder of a lock in the store.
    pub(crate) fn stored(&self, key: &LockKey) -> Stored {
        self.stored_at(self.server_of(key), key)
    }

    pub(crate) fn stored_at(&self, server: usize, key: &LockKey) -> Stored {
        let tenure = self.servers[server]
            .store
            .tenure(self.time_of(server), key)?;
        Some((tenure.lease, tenure.token))
    }

    /// True if no host can know the time of this member of a quorum.
    pub(crate) fn is_behind(&self, server: usize) -> bool {
        let server = &self.servers[server];
        self.plan.is_quorum() && (server.behind > 0 || server.late_by > 0)
    }

    /// Returns how much longer locks may live since failovers set clocks back.
    pub(crate) fn behind(&self) -> Moment {
        self.servers.iter().map(|server| server.behind).sum()
    }

    /// Returns the connection by which a batch leaves. Checks that it is the right one as far as the engine
    /// can know. A client finds the server of a slot by itself if it has not been named yet.
    pub(crate) fn route(&mut self, host: usize, asked: ServerId, batch: &[Op]) -> usize {
        if !self.is_cluster() {
            let server = self.index_of(host, asked);
            self.checks.ensure("route", server.is_some(), || {
                format!("host {host} asks {asked:?}, which does not exist")
            });
            return server.unwrap_or(0);
        }
        let key = batch.first().and_then(|op| op.command.key());
        let slot = key.map(LockKey::slot);
        let slots = batch.iter().map(|op| op.command.key().map(LockKey::slot));
        let one = slot.is_some() && slots.into_iter().all(|of| of == slot);
        self.checks.ensure("route", one, || {
            format!("host {host} sends to a server of a cluster {batch:?}")
        });
        let Some(key) = key else { return 0 };
        let known = self.hosts[host].routes.server(key.slot());
        self.checks.ensure("route", asked == known, || {
            format!("host {host} asks {asked:?} for keys of {known:?}: {batch:?}")
        });
        if let Some(server) = self.index_of(host, asked) {
            self.checks.saw("asked a cluster");
            return server;
        }
        self.checks.saw("asked for a slot that it could not name");
        self.server_of(key)
    }
}

/// The names that answers and pushes carry: their server's, unless this run is to name another one.
impl World {
    pub(crate) fn name_told(&self, host: usize, server: usize) -> ServerId {
        let further = usize::from(self.plan.sabotage == Sabotage::AnswersMisnamed);
        self.name_of(host, (server + further) % self.servers.len())
    }

    pub(crate) fn pusher(&self, host: usize, server: usize) -> Option<ServerId> {
        match self.plan.sabotage {
            Sabotage::PushesMisnamed => Some(self.name_of(host, (server + 1) % self.servers.len())),
            // Any of them may forward it.
            _ if self.is_cluster() => None,
            _ => Some(self.name_of(host, server)),
        }
    }
}

/// Slots that move.
impl World {
    /// Notes that a client has connected to a server. The first connection finds the cluster, and each may
    /// tell the client the slots.
    pub(crate) fn cluster_found(&mut self, host: usize) {
        let server = ServerId::ONLY;
        if !std::mem::replace(&mut self.hosts[host].found, true) {
            self.input(host, Input::Connected { server });
        }
        if self.random.chance(SLOTS_TOLD) {
            self.tell_slots(host);
        }
    }

    fn tell_slots(&mut self, host: usize) {
        let (servers, slots) = (self.servers.len(), usize::from(LockKey::SLOTS));
        let first = |server: usize| u16::try_from((server * slots).div_ceil(servers)).unwrap_or(0);
        for server in 0..servers {
            let slots = first(server)..=first(server + 1) - 1;
            let server = self.name_of(host, server);
            self.input(host, Input::Slots { slots, server });
        }
        let moved: Vec<_> = self.moved.keys().copied().collect();
        for slot in moved {
            self.tell_slot(host, slot);
        }
    }

    /// Tells a client where a slot is by now.
    pub(crate) fn learn(&mut self, process: Process, slot: u16) {
        if self.process(process.0) == process {
            self.tell_slot(process.0, slot);
        }
    }

    /// Tells a client where a slot is when it is redirected, before it gets its answer.
    pub(crate) fn learn_from(&mut self, sent: &SharedSent) {
        let key = sent.batch.first().and_then(|op| op.command.key());
        if let Some(slot) = key.map(LockKey::slot) {
            let (slots, server) = (slot..=slot, self.name_of(sent.host, sent.server));
            self.input(sent.host, Input::Slots { slots, server });
        }
    }

    fn tell_slot(&mut self, host: usize, slot: u16) {
        if let Some(server) = self.moved.get(&slot) {
            let (slots, server) = (slot..=slot, self.name_of(host, *server));
            self.input(host, Input::Slots { slots, server });
        }
    }

    /// Moves a slot with all its keys from one server of the cluster to another.
    pub(crate) fn move_slot(&mut self) {
        let keys = self.plan.keys();
        let others = u64::try_from(self.servers.len() - 1).unwrap_or(0);
        let Some(key) = self.random.pick(&(0..keys.len()).collect::<Vec<_>>()) else {
            return;
        };
        let slot = keys[key].slot();
        let from = self.server_of(&keys[key]);
        let further = usize::try_from(1 + self.random.below(others)).unwrap_or(1);
        let to = (from + further) % self.servers.len();
        self.trace(|_| format!("slot {slot} moves from server {from} to server {to}"));
        let (then, now) = (self.time_of(from), self.time_of(to));
        for key in keys.iter().filter(|key| key.slot() == slot) {
            if self.stored(key).is_some() {
                self.checks.saw("a lock moved with its slot");
            }
            let mut source = std::mem::take(&mut self.servers[from].store);
            self.servers[to]
                .store
                .take_over(now, key, (&mut source, then));
            self.servers[from].store = source;
            self.checks.lines.shift(key, then.millis(), now.millis());
            let state = self.state_at(to, key);
            self.checks.knows(key, state);
        }
        self.moved.insert(slot, to);
        self.checks.saw("a slot moved");
        for host in 0..self.hosts.len() {
            if self.random.chance(30) {
                let at = self.now + self.random.below(3_000) * MILLI;
                self.schedule(at, Happening::Learn(self.process(host), slot));
            }
        }
    }

    /// Redirects a batch whose slot has moved: the client asks the server that has it.
    pub(crate) fn redirect(&mut self, sent: &SharedSent, server: usize) {
        let host = sent.host;
        self.trace(|_| {
            format!(
                "host {host} is sent on to server {server}: {:?}",
                sent.batch
            )
        });
        let delay = self.delay() + self.delay();
        let link = &mut self.hosts[host].links[server];
        if !link.up || link.black_hole > self.now {
            return self.no_reply(sent);
        }
        let arrival = link.last_arrival.max(self.now + delay);
        link.last_arrival = arrival;
        let sent = Sent {
            server,
            connection: link.connection,
            told: link.told,
            redirected: true,
            ..Sent::clone(sent)
        };
        self.checks.saw("sent on to another server");
        self.schedule(arrival, Happening::Arrival(sent.into()));
    }
}
