//! The servers of a store: how to route operations, which replies are pending, which pushes arrive, and the
//! bounds on each clock. Only this module knows how many servers there are.

mod concurrency;
mod outbox;
mod rates;
mod server;

use std::ops::RangeInclusive;

use super::clock::Margin;
use super::ctx::{Ctx, Origin, Serial};
use super::io::{RequestId, ServerId};
use super::settings::Settings;
use crate::error::Error;
use crate::event::LeaseEvent;
use crate::protocol::{BatchReply, LockKey};
use crate::time::{ServerTime, Timestamp};
pub(super) use outbox::Queued;
pub(super) use server::Replied;
use server::Server;
#[cfg(test)]
pub(super) use server::{
    APART, FEW_IN_FLIGHT, LATE, LEAST_HALF, MANY, MAX_ALONE_IN_FLIGHT, MAX_BATCH, MAX_BATCH_BYTES,
    MAX_IN_FLIGHT, NEAR,
};

/// An operation that is pending or in flight.
#[derive(Copy, Clone, Debug)]
pub(super) struct Flight {
    pub(super) attempt: Serial,
    pub(super) server: ServerId,
    /// The time at which it left, or an earlier one.
    pub(super) sent: Timestamp,
    /// The time after which no call waits and the server will not act.
    pub(super) give_up: Timestamp,
}

#[derive(Debug)]
pub(super) struct Servers {
    /// The servers, ordered by ID. [`ServerId::ONLY`] is always there.
    servers: Vec<Server>,
    /// The first slot of each range of slots and its server, in order. Empty without routes.
    routes: Vec<(u16, ServerId)>,
}

/// Routing.
impl Servers {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            servers: vec![Server::new(ServerId::ONLY, settings)],
            routes: Vec::new(),
        }
    }

    /// Returns the server that has a lock's keys.
    pub(super) fn of(&self, key: &LockKey) -> ServerId {
        if self.routes.is_empty() {
            return ServerId::ONLY;
        }
        self.serving(key.slot())
    }

    fn serving(&self, slot: u16) -> ServerId {
        let after = self.routes.partition_point(|(first, _)| *first <= slot);
        let route = after.checked_sub(1).map(|place| self.routes[place].1);
        route.unwrap_or(ServerId::ONLY)
    }

    /// Records that this server serves these slots from now on.
    pub(super) fn route(&mut self, cx: &Ctx, slots: &RangeInclusive<u16>, server: ServerId) {
        let (first, last) = (*slots.start(), (*slots.end()).min(LockKey::SLOTS - 1));
        if first > last {
            return;
        }
        let next = (last + 1, self.serving(last + 1));
        let mut routes = Vec::with_capacity(self.routes.len() + 2);
        let mut add = |route: (u16, ServerId)| {
            if routes.last().is_none_or(|(_, before)| *before != route.1) {
                routes.push(route);
            }
        };
        for route in self.routes.iter().filter(|(begin, _)| *begin < first) {
            add(*route);
        }
        add((first, server));
        add(next);
        for route in self.routes.iter().filter(|(begin, _)| *begin > next.0) {
            add(*route);
        }
        self.routes = routes;
        self.move_queued(cx, server);
    }

    /// Moves pending operations to the server that has their keys now.
    fn move_queued(&mut self, cx: &Ctx, to: ServerId) {
        let mut moved = Vec::new();
        let mut servers = std::mem::take(&mut self.servers);
        for server in servers.iter_mut().filter(|server| server.id != to) {
            let goes = |queued: &Queued| {
                let key = queued.command.key();
                key.is_some_and(|key| self.of(key) == to)
            };
            moved.append(&mut server.outbox.take_all(&goes));
        }
        self.servers = servers;
        for queued in moved {
            self.at(to, &cx.settings).queue(queued);
        }
    }

    /// Returns the server where an attempt is pending. It may differ from the one it was first queued for.
    fn waiting_at(&mut self, flight: Flight) -> Option<&mut Server> {
        let mut servers = self.servers.iter_mut();
        servers.find(|server| server.outbox.has(flight.attempt))
    }

    fn place(&self, id: ServerId) -> Result<usize, usize> {
        self.servers.binary_search_by_key(&id, |server| server.id)
    }

    fn get(&self, id: ServerId) -> Option<&Server> {
        self.servers.get(self.place(id).ok()?)
    }

    fn get_mut(&mut self, id: ServerId) -> Option<&mut Server> {
        let place = self.place(id).ok()?;
        self.servers.get_mut(place)
    }

    /// Returns a server, and creates it if it is new.
    fn at(&mut self, id: ServerId, settings: &Settings) -> &mut Server {
        let place = self.place(id).unwrap_or_else(|place| {
            self.servers.insert(place, Server::new(id, settings));
            place
        });
        &mut self.servers[place]
    }
}

/// Connections, replies and sending.
impl Servers {
    /// Takes in a new connection. Returns the origins of the requests that the former one lost, and the
    /// reason.
    pub(super) fn connected(&mut self, cx: &mut Ctx, id: ServerId) -> (Vec<Origin>, Error) {
        self.at(id, &cx.settings).connected(cx)
    }

    /// Takes in the loss of a connection. Returns the origins of the lost requests, and the error for
    /// everyone who waits for a connection.
    pub(super) fn disconnected(
        &mut self,
        cx: &mut Ctx,
        id: ServerId,
        error: Error,
    ) -> (Vec<Origin>, Error) {
        self.at(id, &cx.settings).disconnected(cx, error)
    }

    /// Takes in the reply to a request, or to its operations at these places. The request may have been given
    /// up.
    pub(super) fn replied(
        &mut self,
        cx: &mut Ctx,
        id: ServerId,
        (request, places): (RequestId, Option<&[usize]>),
        result: Result<BatchReply, Error>,
    ) -> Replied {
        let mut servers = self.servers.iter_mut();
        let asked = servers.find_map(|server| match places {
            Some(places) => server.take_part(request, places),
            None => server.take_request(request),
        });
        let before = self.margin_of_all();
        let server = self.at(id, &cx.settings);
        let replied = server.replied(cx, asked, result);
        if self.margin_of_all() > before {
            self.announce_drift(cx);
        }
        replied
    }

    /// Sets the check that the server is still in the incarnation that acquisitions are for. Only quorums use
    /// it, and each part of a quorum has one server.
    pub(super) fn mean(&mut self, check: Option<crate::protocol::Enter>) {
        self.servers[0].meant = check;
    }

    pub(super) fn time(&mut self, cx: &mut Ctx, id: ServerId) {
        if let Some(server) = self.get_mut(id) {
            server.time(cx);
        }
    }

    /// Returns the time that the server's timer is set for.
    pub(super) fn wake(&self, id: ServerId) -> Option<Timestamp> {
        self.get(id).map(|server| server.wake)
    }

    pub(super) fn len(&self) -> usize {
        self.servers.len()
    }

    /// Sends the pending operations that can leave now. Returns the operations that cannot be sent, and why.
    pub(super) fn flush(&mut self, cx: &mut Ctx) -> Vec<(Vec<Origin>, ServerId, Error)> {
        let mut refused = Vec::new();
        for server in &mut self.servers {
            if let Some(error) = server.flush(cx) {
                refused.push((server.queued(), server.id, error));
            }
        }
        refused
    }

    /// True if a server's pending operations could leave now and more are likely to join them at once.
    pub(super) fn expect_more(&self, settings: &Settings) -> bool {
        self.servers
            .iter()
            .any(|server| server.expects_more(settings))
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.servers.iter().any(|server| server.outbox.len() > 0)
    }

    /// Takes back an operation that cannot be sent.
    pub(super) fn take_back(&mut self, id: ServerId, origin: Origin) {
        if let Some(server) = self.get_mut(id) {
            server.outbox.take_back(origin.attempt);
        }
    }
}

/// Operations.
impl Servers {
    /// Queues an operation. It leaves when the host has taken all outputs, unless many batches are in flight.
    /// Without a connection it waits for one until its `give_up`. An operation without a key goes to
    /// `keyless`.
    pub(super) fn send(&mut self, cx: &Ctx, queued: Queued, keyless: ServerId) -> Flight {
        let flight = Flight {
            attempt: queued.origin.attempt,
            server: queued.command.key().map_or(keyless, |key| self.of(key)),
            sent: cx.now,
            give_up: queued.give_up,
        };
        self.at(flight.server, &cx.settings).queue(queued);
        flight
    }

    pub(super) fn has_left(&mut self, flight: Flight) -> bool {
        self.waiting_at(flight).is_none()
    }

    /// Takes back an operation that has not left yet and so never acts. Returns true if it was still pending.
    pub(super) fn unsend(&mut self, flight: Flight) -> bool {
        let server = self.waiting_at(flight);
        server.is_some_and(|server| server.outbox.take_back(flight.attempt).is_some())
    }

    /// Extends the time of an operation that did not leave in time. It keeps its place among the pending
    /// operations. Returns true if it was still pending.
    pub(super) fn wait_on(&mut self, flight: Flight, give_up: Timestamp) -> bool {
        let server = self.waiting_at(flight);
        let queued = server.and_then(|server| server.outbox.find(flight.attempt));
        queued.map(|queued| queued.give_up = give_up).is_some()
    }

    /// Returns why an attempt has no reply in time. An operation that never left did nothing.
    pub(super) fn why_no_answer(&mut self, flight: Flight) -> Error {
        let server = self.waiting_at(flight);
        server.map_or_else(Error::no_answer, |server| server.why_nothing_leaves())
    }
}

/// Clocks.
impl Servers {
    /// True if a server's clock is known, so that operations can be sent to it.
    pub(super) fn is_up(&self, id: ServerId) -> bool {
        self.get(id).is_some_and(|server| server.anchor().is_some())
    }

    /// Returns the deadline of a lease: the expiry rule for all leases. When the server's clock said `time`,
    /// the local time was `began` or later. The server expires the lease at `expires`, and the lease was
    /// requested for at most `most`.
    pub(super) fn deadline(
        &self,
        id: ServerId,
        began: Timestamp,
        time: ServerTime,
        (expires, most): (ServerTime, std::time::Duration),
    ) -> Timestamp {
        self.margin(id)
            .deadline(began, time, expires.min(time + most))
    }

    /// Returns a local time no later than the one at which the server's clock said `time`. `None` if the
    /// clock is not known, or if the result lies in the future, because then the clock was set.
    pub(super) fn not_before(&self, cx: &Ctx, id: ServerId, time: ServerTime) -> Option<Timestamp> {
        let server = self
            .get(id)
            .filter(|server| !server.has_many_clocks(&cx.settings))?;
        let at = server.anchor()?.not_before(time, server.margin());
        (at <= cx.now).then_some(at)
    }

    /// Returns a time that the server's clock reaches no later than the local clock reaches `at`, if the clock is
    /// known.
    pub(super) fn not_after(&self, id: ServerId, at: Timestamp) -> Option<ServerTime> {
        let server = self.get(id)?;
        Some(server.anchor()?.not_after(at, server.margin()))
    }

    /// Returns about what the server's clock says now, if that is known.
    pub(super) fn clock(&self, id: ServerId, now: Timestamp) -> Option<ServerTime> {
        Some(self.get(id)?.anchor()?.about(now))
    }

    /// Returns a time that the clock of `to` reaches no later than the clock of `from` reaches `time`. `None`
    /// if one of the clocks is not known.
    pub(super) fn no_later(
        &self,
        time: ServerTime,
        from: ServerId,
        to: ServerId,
    ) -> Option<ServerTime> {
        let [from, to] = [from, to].map(|id| self.get(id));
        let (from, to) = (from?, to?);
        let at = from.anchor()?.not_before(time, from.margin());
        Some(to.anchor()?.not_after(at, to.margin()))
    }

    pub(super) fn margin(&self, id: ServerId) -> Margin {
        let server = self.get(id);
        server.map_or(Margin::MOST, Server::margin)
    }

    /// Returns the drift margin as an event, if it had to be widened.
    pub(super) fn drift(&self, settings: &Settings) -> Option<LeaseEvent> {
        let drift_margin = self.margin_of_all().parts_per_million();
        let widened = drift_margin > settings.drift_margin;
        widened.then_some(LeaseEvent::ClockDrift { drift_margin })
    }

    fn margin_of_all(&self) -> Margin {
        let margins = self.servers.iter().map(Server::margin);
        margins.max().unwrap_or(Margin::LEAST)
    }

    fn announce_drift(&self, cx: &mut Ctx) {
        if let Some(event) = self.drift(&cx.settings) {
            cx.push(super::io::Output::Notice { event });
        }
    }
}

/// Pushes.
impl Servers {
    pub(super) fn subscribed(&mut self, cx: &Ctx, id: ServerId) {
        self.at(id, &cx.settings).hears = true;
    }

    /// Records that pushes no longer arrive. Returns true if they did until now.
    pub(super) fn unsubscribed(&mut self, id: ServerId) -> bool {
        let server = self.get_mut(id);
        server.is_some_and(|server| std::mem::take(&mut server.hears))
    }

    pub(super) fn hears(&self, id: ServerId) -> bool {
        self.get(id).is_some_and(|server| server.hears)
    }

    /// Asks the host for pushes, once there is a lock that they could be about.
    pub(super) fn want_pushes(&mut self, cx: &mut Ctx, id: ServerId) {
        let server = self.at(id, &cx.settings);
        if !std::mem::replace(&mut server.wants_pushes, true) {
            cx.push(super::io::Output::Subscribe { server: id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use crate::protocol::ClientId;

    /// Catches a range of slots that cuts off too much or too little of its neighbors.
    #[test]
    fn each_slot_has_its_latest_route() {
        let cx = Ctx::new(Settings::new(ClientId(1)));
        let mut servers = Servers::new(&cx.settings);
        let mut expected = vec![ServerId::ONLY; usize::from(LockKey::SLOTS)];
        let mut random = 9_u64;
        let mut next = |below: u16| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            u16::try_from((random >> 33) % u64::from(below)).expect("it is below a u16")
        };
        for round in 0..200 {
            // Among few slots, ranges often end where others begin.
            let most = if round % 4 == 0 { 16_500 } else { 30 };
            let [a, b] = [0, 0].map(|_| next(most));
            let (slots, server) = (a.min(b)..=a.max(b), ServerId(next(4).into()));
            servers.route(&cx, &slots, server);
            for slot in slots.filter(|slot| *slot < LockKey::SLOTS) {
                expected[usize::from(slot)] = server;
            }
            for slot in 0..LockKey::SLOTS {
                assert_eq!(servers.serving(slot), expected[usize::from(slot)], "{slot}");
            }
            let begins = servers.routes.iter().map(|(first, _)| first);
            assert!(begins.is_sorted_by(|one, next| one < next));
        }
    }

    #[test]
    fn a_lock_is_at_the_server_of_its_slot() {
        let cx = Ctx::new(Settings::new(ClientId(1)));
        let mut servers = Servers::new(&cx.settings);
        let name = Name::new("orders").expect("a short name is valid");
        let key = LockKey::new("ns", &name).expect("a short namespace is valid");
        assert_eq!(servers.of(&key), ServerId::ONLY);
        servers.route(&cx, &(key.slot()..=key.slot()), ServerId(2));
        assert_eq!(servers.of(&key), ServerId(2));
    }
}
