//! One host: an engine, a clock, connections, and a program that uses it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use leasehold_engine::engine::{Engine, Input, RequestId, ServerId};
use leasehold_engine::protocol::{ClientId, LockKey, Op};
use leasehold_engine::time::Timestamp;

use crate::book::{Book, Look};
use crate::clock::{HostClock, Moment};
use crate::plan::Plan;
use crate::pushes::Subscription;
use crate::random::Random;
use crate::readers::Readers;
use crate::servers::Routes;

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) client: ClientId,
    /// The number of the process; each crash increments it.
    pub(crate) life: u64,
    pub(crate) engine: Engine,
    /// When the engine wants to be told the time.
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) clock: HostClock,
    pub(crate) book: Book,
    /// The servers in the host's own order.
    pub(crate) list: Vec<usize>,
    /// The link to each server.
    pub(crate) links: Vec<Link>,
    /// The server of each slot, as far as the host was told.
    pub(crate) routes: Routes,
    /// True once the host has been connected to a server of its cluster.
    pub(crate) found: bool,
    /// One subscription for all servers, or one for each member of a quorum.
    pub(crate) subscriptions: Vec<Subscription>,
    /// The keys that the host has read; it hears of their changes.
    pub(crate) watched: BTreeSet<LockKey>,
    pub(crate) readers: Readers,
    /// The number of inputs that the engine received.
    pub(crate) fed: u64,
    /// How late the engine is told the time.
    pub(crate) lateness: Moment,
    pub(crate) paused: bool,
    pub(crate) resumed: Moment,
    /// The inputs that arrived during the pause.
    pub(crate) inbox: VecDeque<Input>,
}

/// A host's connection to a server. Requests on one connection arrive in order, and so do the replies.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// The number of the connection, from 1; each replacement increments it.
    pub(crate) connection: u64,
    pub(crate) up: bool,
    /// True if the engine was told that there is no connection.
    pub(crate) told_down: bool,
    /// How often the connection changed, and how often the engine was told so.
    pub(crate) changes: u64,
    pub(crate) told: u64,
    pub(crate) last_arrival: Moment,
    pub(crate) last_reply: Moment,
    /// Until then nothing arrives in either direction, without notice.
    pub(crate) black_hole: Moment,
}

/// A batch on its way to a server.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) host: usize,
    /// The server that the batch goes to, and the one that the engine meant.
    pub(crate) server: usize,
    pub(crate) asked: ServerId,
    /// True if the batch first came to a server that no longer has the keys.
    pub(crate) redirected: bool,
    pub(crate) connection: u64,
    /// How often the engine had been told of another connection.
    pub(crate) told: u64,
    pub(crate) request: RequestId,
    pub(crate) batch: Vec<Op>,
    /// When the host gives each operation up, by its own clock.
    pub(crate) bounds: Vec<Timestamp>,
    pub(crate) give_up: Timestamp,
}

pub(crate) type SharedSent = Arc<Sent>;

impl Sent {
    /// Returns each operation with the time at which it is given up. The server refuses all of them after the
    /// earliest bound of any.
    pub(crate) fn ops(&self) -> impl Iterator<Item = (Op, Timestamp)> + '_ {
        let earliest = self.batch.iter().map(|op| op.not_after).min();
        let alone = move |op: &Op| Op {
            command: op.command.clone(),
            not_after: earliest.unwrap_or(op.not_after),
        };
        self.batch
            .iter()
            .map(alone)
            .zip(self.bounds.iter().copied())
    }
}

impl Host {
    pub(crate) fn new(plan: &Plan, random: &mut Random, id: usize) -> Self {
        let client = ClientId(random.number());
        let engine = plan.engine(client);
        Self {
            client,
            life: 0,
            readers: Readers::new(&engine),
            engine,
            wake_at: None,
            clock: plan.clock(random),
            book: Book::new(id, plan.limit()),
            list: plan.list(random),
            links: plan.clocks.iter().map(|_| Link::default()).collect(),
            routes: Routes::default(),
            found: false,
            subscriptions: plan.subscriptions(),
            watched: BTreeSet::new(),
            fed: 0,
            lateness: plan.lateness(random),
            paused: false,
            resumed: 0,
            inbox: VecDeque::new(),
        }
    }

    /// Starts another process on the same machine in place of the one that died.
    pub(crate) fn restarted(&mut self, plan: &Plan, random: &mut Random) {
        let old = std::mem::replace(self, Self::new(plan, random, self.book.host));
        (self.clock, self.lateness, self.list) = (old.clock, old.lateness, old.list);
        (self.life, self.resumed, self.fed) = (old.life + 1, old.resumed, old.fed);
        self.links = old.links;
        for link in &mut self.links {
            link.up = false;
            link.connection += 1;
            link.told_down = false;
            link.told = link.changes;
        }
    }

    /// Returns when the engine is told the time next.
    pub(crate) fn wake(&self) -> Option<Moment> {
        let at = self.wake_at.filter(|_| !self.paused)?;
        Some(self.clock.when(at).saturating_add(self.lateness))
    }

    pub(crate) fn look(&self, now: Moment) -> Look {
        Look {
            now: self.clock.at(now),
            excused: self.resumed == now,
        }
    }
}
