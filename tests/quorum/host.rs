//! One host: an engine, a clock, a link to each server, and a program that uses it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{Engine, Input, RequestId};
use leasehold::protocol::{ClientId, Op};
use leasehold::time::Timestamp;

use crate::book::{Book, Look};
use crate::clock::{HostClock, Moment};
use crate::plan::Plan;
use crate::random::Random;

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) client: ClientId,
    /// Which process it is: counted on by crashes.
    pub(crate) life: u64,
    pub(crate) engine: Engine,
    /// When the engine wants to be told the time.
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) clock: HostClock,
    pub(crate) book: Book,
    /// Which server stands at which place of its list.
    pub(crate) list: Vec<usize>,
    /// To each server.
    pub(crate) links: Vec<Link>,
    /// On each server's pushes.
    pub(crate) ears: Vec<Ear>,
    /// How late it is told the time.
    pub(crate) lateness: Moment,
    pub(crate) paused: bool,
    pub(crate) resumed: Moment,
    /// What came while it was paused.
    pub(crate) inbox: VecDeque<Input>,
}

/// A host's connection to a server. What is sent on one arrives in order, as do the replies.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Which one: counted on when it is lost, and when it is there again.
    pub(crate) connection: u64,
    pub(crate) up: bool,
    pub(crate) last_arrival: Moment,
    pub(crate) last_reply: Moment,
    /// Nothing comes through until then, in either direction, and nobody is told.
    pub(crate) black_hole: Moment,
}

/// A host's subscription to a server.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    /// Which one: counted on when it breaks.
    pub(crate) connection: u64,
    pub(crate) wanted: bool,
    pub(crate) up: bool,
    pub(crate) last: Moment,
}

/// A batch on its way to a server.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) host: usize,
    pub(crate) server: usize,
    pub(crate) connection: u64,
    pub(crate) request: RequestId,
    pub(crate) batch: Vec<Op>,
    pub(crate) give_up: Timestamp,
}

pub(crate) type SharedSent = Arc<Sent>;

impl Host {
    pub(crate) fn new(plan: &Plan, random: &mut Random, id: usize) -> Self {
        let client = ClientId(random.next());
        // Each of the rounds of a call may have to wait for a member that is silent.
        let limit = plan.patience + 6 * plan.timeout + Duration::from_secs(2);
        let members = plan.clocks.len();
        Self {
            client,
            life: 0,
            engine: Engine::quorum(plan.settings(client), members)
                .expect("three or five are right"),
            wake_at: None,
            clock: plan.clock(random),
            book: Book::new(id, limit),
            list: plan.list(random),
            links: (0..members).map(|_| Link::default()).collect(),
            ears: (0..members).map(|_| Ear::default()).collect(),
            lateness: plan.lateness(random),
            paused: false,
            resumed: 0,
            inbox: VecDeque::new(),
        }
    }

    /// The process dies, and another begins on the same machine.
    pub(crate) fn restarted(&mut self, plan: &Plan, random: &mut Random) {
        let old = std::mem::replace(self, Self::new(plan, random, self.book.host));
        (self.clock, self.lateness) = (old.clock, old.lateness);
        self.list = old.list;
        self.life = old.life + 1;
        for (link, old) in self.links.iter_mut().zip(&old.links) {
            link.connection = old.connection + 1;
        }
    }

    /// When it is to be told the time next.
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
