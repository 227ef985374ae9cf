//! The way to a server and back, and what the server does.

use std::sync::Arc;

use leasehold::engine::{Input, RequestId, ServerId};
use leasehold::protocol::{BatchReply, Command, LeaseId, Op, Release, Renew, Reply};
use leasehold::time::{ServerTime, Timestamp};
use leasehold::{Error, ErrorKind};

use crate::checks::Stored;
use crate::clock::{MILLI, Moment};
use crate::host::{Sent, SharedSent};
use crate::line::Step;
use crate::plan::Sabotage;
use crate::world::{Happening, World};

/// To a server.
impl World {
    pub(crate) fn send(
        &mut self,
        host: usize,
        asked: ServerId,
        request: RequestId,
        batch: Vec<Op>,
        give_up: Timestamp,
    ) {
        let book = &self.hosts[host].book;
        let bound = |op: &Op| match &op.command {
            Command::Acquire(acquire) => {
                let attempt = book.attempts.get(&acquire.claim.lease);
                attempt.map_or(give_up, |attempt| give_up.min(attempt.wanted))
            }
            _ => give_up,
        };
        let bounds = batch.iter().map(bound).collect();
        for op in &batch {
            self.check_sent(host, op);
        }
        let server = self.route(host, asked, &batch);
        let known = asked == self.name_of(server);
        let link = &self.hosts[host].links[server];
        let (connection, told) = (link.connection, link.told);
        // What was due before it was told may still be asked for: the server's time alone.
        let nowhere = link.told_down && known && !batch.is_empty();
        self.checks.ensure("progress", !nowhere, || {
            format!("host {host} sends nowhere")
        });
        let sent = Sent {
            host,
            server,
            asked,
            redirected: false,
            connection,
            told,
            request,
            batch,
            bounds,
            give_up,
        };
        self.depart(Arc::new(sent));
    }

    fn depart(&mut self, sent: SharedSent) {
        let (host, server, connection) = (sent.host, sent.server, sent.connection);
        let known = sent.asked == self.name_of(server);
        let delay = self.delay();
        let faults = &self.plan.faults;
        let (lost, refused) = (faults.lost_requests, faults.refusals);
        let behind = self.servers[server].behind > 0;
        let link = &mut self.hosts[host].links[server];
        // A server's clock says nothing of another one's, so a host must not be taken for one that
        // knows of a failover.
        let unaware = behind && link.changes != link.told;
        if !known && !link.up {
            let error = Error::new(ErrorKind::Unavailable, "no connection leads there");
            let input = Input::Reply {
                server: sent.asked,
                request: sent.request,
                result: Err(error),
            };
            return self.deliver_at(self.now + delay, host, None, input);
        }
        if unaware || !link.up || link.black_hole > self.now || self.random.chance(lost) {
            return self.no_reply(&sent);
        }
        let arrival = link.last_arrival.max(self.now + delay);
        link.last_arrival = arrival;
        if self.random.chance(refused) {
            let kind = if delay.is_multiple_of(2) {
                ErrorKind::Unavailable
            } else {
                ErrorKind::ReadOnly
            };
            let error = Error::new(kind, "the server does not serve just now");
            return self.reply_at(arrival + delay, &sent, Err(error));
        }
        self.schedule(arrival, Happening::Arrival(sent.clone()));
        if self.random.chance(self.plan.faults.repeats) {
            let most = [1, 100, 2_000][usize::try_from(self.random.below(3)).unwrap_or(0)];
            let again = arrival + self.random.below(most) * MILLI;
            self.schedule(again, Happening::Again(sent));
        }
        if self.random.chance(self.plan.faults.cuts) {
            let at = self.now + self.random.below(delay + MILLI);
            let cut = Happening::Cut {
                host,
                server,
                connection,
            };
            self.schedule(at, cut);
        }
    }

    pub(crate) fn delay(&mut self) -> Moment {
        let faults = &self.plan.faults;
        if self.random.chance(faults.stall) {
            return self.random.between(500, 6_000) * MILLI;
        }
        if self.random.chance(faults.slow) {
            return self.random.between(5, 600) * MILLI;
        }
        self.random.between(20_000, 3 * MILLI)
    }

    /// Nothing comes back; the driver says so when the engine has given up, or somewhat earlier.
    pub(crate) fn no_reply(&mut self, sent: &SharedSent) {
        let give_up = self.hosts[sent.host].clock.when(sent.give_up);
        let (kind, at) = match self.random.below(3) {
            0 => (
                ErrorKind::Unavailable,
                self.now + self.random.below(50 * MILLI),
            ),
            1 => (ErrorKind::Timeout, give_up),
            _ => (ErrorKind::Timeout, give_up + self.random.below(300 * MILLI)),
        };
        let (by, request) = (None, sent.request);
        let result = Err(Error::new(kind, "no answer came"));
        let input = Input::Reply {
            server: sent.asked,
            request,
            result,
        };
        self.deliver_at(at, sent.host, by, input);
        self.checks.saw("message lost");
    }

    fn reply_at(&mut self, at: Moment, sent: &SharedSent, result: Result<BatchReply, Error>) {
        let link = &mut self.hosts[sent.host].links[sent.server];
        let at = link.last_reply.max(at);
        link.last_reply = at;
        let (by, request) = (Some(sent.clone()), sent.request);
        let input = Input::Reply {
            server: self.name_told(sent.server),
            request,
            result,
        };
        self.deliver_at(at, sent.host, by, input);
    }

    fn deliver_at(&mut self, at: Moment, host: usize, by: Option<SharedSent>, input: Input) {
        let life = self.hosts[host].life;
        let delivery = Happening::Delivery {
            host,
            life,
            by,
            input,
        };
        self.schedule(at, delivery);
    }
}

/// At a server.
impl World {
    pub(crate) fn arrive(&mut self, sent: &SharedSent) {
        let (host, server) = (sent.host, sent.server);
        let time = self.time_of(server);
        let current = self.hosts[host].links[server].connection == sent.connection;
        let keys = sent.batch.first().and_then(|op| op.command.key());
        if let Some(serving) = keys.map(|key| self.server_of(key))
            && serving != server
        {
            // A client that has another connection by now asks nobody again.
            if current {
                self.redirect(sent, serving);
            }
            return;
        }
        self.trace(|_| format!("server {server}, for host {host}: {:?}", sent.batch));
        let mut replies = Vec::with_capacity(sent.batch.len());
        let is_timeless = is_timeless(&sent.batch);
        for (op, bound) in sent.ops() {
            if is_late_with_others(&sent.batch, &op, time) {
                replies.push(Ok(Reply::Late));
                continue;
            }
            let reply = self.execute(sent, &op, bound);
            if !current && reply != Ok(Reply::Late) {
                self.checks.saw("executed after a reconnect");
            }
            replies.push(self.plan.told(reply));
        }
        self.trace(|_| format!("    {replies:?}"));
        if !current {
            return;
        }
        let delay = self.delay();
        let lost = self.plan.faults.lost_replies;
        let black_hole = self.hosts[host].links[server].black_hole;
        if black_hole > self.now || self.random.chance(lost) {
            return self.no_reply(sent);
        }
        let tells_time = !is_timeless || replies.iter().any(|reply| reply != &Ok(Reply::Released));
        let mut reply = BatchReply {
            time: tells_time.then_some(time),
            replies,
        };
        if self.plan.sabotage == Sabotage::WrongAnchor && tells_time {
            reply.time = Some(ServerTime::from_micros(time.as_micros() - 900_000));
        }
        self.reply_at(self.now + delay, sent, Ok(reply));
    }

    /// A batch comes once more, as from a client or a proxy that repeats what was not answered; its
    /// answer goes nowhere. An acquisition that nobody wants any more would take a free lock, or a
    /// place in line, for nobody: that is known, and not looked for here.
    pub(crate) fn arrive_again(&mut self, sent: &SharedSent) {
        let (host, server) = (sent.host, sent.server);
        self.trace(|_| {
            format!(
                "server {server}, once more for host {host}: {:?}",
                sent.batch
            )
        });
        let time = self.time_of(server);
        for (op, bound) in sent.ops() {
            if is_late_with_others(&sent.batch, &op, time) {
                continue;
            }
            let harmless = match &op.command {
                Command::Acquire(acquire) => {
                    let holder = self.stored(&acquire.key).map(|(lease, _)| lease);
                    holder.is_some_and(|holder| holder == acquire.claim.lease || !acquire.waits)
                }
                _ => true,
            };
            let key = op.command.key();
            let harmless = harmless && key.is_none_or(|key| self.server_of(key) == server);
            if harmless && self.execute(sent, &op, bound) != Ok(Reply::Late) {
                self.checks.saw("executed twice");
            }
        }
    }

    fn execute(&mut self, sent: &Sent, op: &Op, bound: Timestamp) -> Result<Reply, Error> {
        let (host, server) = (sent.host, sent.server);
        let time = self.time_of(server);
        if let Some(reply) = self.withheld(op) {
            return Ok(reply);
        }
        let Some(key) = op.command.key() else {
            let store = &mut self.servers[server].store;
            return store
                .execute(time, std::slice::from_ref(op))
                .replies
                .remove(0);
        };
        let (before, asker) = (self.stored(key), asker(&op.command));
        let place = asker.and_then(|lease| self.arrival(key, lease));
        let reply = self.sabotaged(time, host, op);
        if reply == Ok(Reply::Late) {
            if op.not_after > ServerTime::from_micros(0) {
                self.checks.saw("came late");
            }
            return reply;
        }
        self.executed += 1;
        let after = self.stored(key);
        let now = self.hosts[host].clock.at(self.now);
        let new_place = asker.and_then(|lease| self.arrival(key, lease));
        let joined = new_place.is_some() && new_place != place;
        if joined || before != after || matches!(reply, Ok(Reply::Held(_) | Reply::Renewed { .. }))
        {
            if sent.redirected {
                // By the clock of the server that was asked it may have been in time.
                if let Some(lease) = lease_of(&op.command).filter(|_| now > bound) {
                    self.checks.stray.insert(lease);
                    self.checks.saw("acted late by another server's clock");
                }
            } else if !is_release(op) {
                // A release frees what is its own lease's, however late: nobody counts on that any more.
                self.checks.in_time(&op.command, now, bound);
            }
        }
        let step = Step {
            server,
            time,
            command: &op.command,
            before,
            after,
            expires: self
                .store_of(key)
                .tenure(time, key)
                .map(|tenure| tenure.expires),
            reply: &reply,
            kept_place: place.is_some() && place == new_place,
        };
        self.checks.executed(&step);
        self.dispatch_pushes(&step);
        self.watch_handover(&step);
        self.watch_holder(&step);
        if let (Command::Renew(Renew { lease, .. }), Ok(Reply::Renewed { .. })) =
            (&op.command, &reply)
        {
            self.check_renewed(host, *lease, after);
        }
        reply
    }

    /// I5: what was renewed is what the host holds.
    fn check_renewed(&mut self, host: usize, lease: LeaseId, after: Stored) {
        let book = &self.hosts[host].book;
        let lock = book
            .attempts
            .get(&lease)
            .and_then(|attempt| book.locks.get(&attempt.lock));
        let held = lock.and_then(|lock| lock.held.as_ref());
        let held = held
            .filter(|held| held.lease == lease)
            .map(|held| held.token);
        let same = held.is_none_or(|held| after.is_some_and(|(_, token)| token == held));
        self.checks.ensure("I5", same, || {
            format!("host {host} holds {lease} with {held:?} and renewed {after:?}")
        });
    }
}

/// Back to the host.
impl World {
    pub(crate) fn deliver(&mut self, host: usize, life: u64, by: Option<SharedSent>, input: Input) {
        let state = &self.hosts[host];
        let is_old = |sent: &SharedSent| state.links[sent.server].connection != sent.connection;
        if state.life != life || by.as_ref().is_some_and(is_old) {
            return;
        }
        if let Some(sent) = by
            .as_ref()
            .filter(|sent| sent.asked != self.name_of(sent.server))
        {
            self.learn_from(sent);
        }
        if self.hosts[host].paused {
            return self.input(host, input);
        }
        let lost = by
            .map(|sent| self.refused_renewals(&sent, &input))
            .unwrap_or_default();
        self.input(host, input);
        for lease in lost {
            let mut locks = self.hosts[host].book.locks.values();
            let held = locks.any(|lock| lock.held.as_ref().is_some_and(|held| held.lease == lease));
            self.checks.ensure("I4", !held, || {
                format!("host {host}: the renewal of {lease} was refused, and it is still held")
            });
        }
    }

    /// The leases that an answer, still waited for, says are gone.
    fn refused_renewals(&self, sent: &Sent, input: &Input) -> Vec<LeaseId> {
        let Input::Reply {
            result: Ok(answer), ..
        } = input
        else {
            return Vec::new();
        };
        let host = &self.hosts[sent.host];
        if sent.redirected || host.links[sent.server].told != sent.told {
            return Vec::new();
        }
        // While the server would still act, the host has not given the command up.
        let time = self.time_of(sent.server);
        let refused = |(op, reply): (&Op, &Result<Reply, Error>)| match (&op.command, reply) {
            (Command::Renew(Renew { lease, .. }), Ok(Reply::Gone | Reply::Taken)) => {
                (time < op.not_after).then_some(*lease)
            }
            _ => None,
        };
        sent.batch
            .iter()
            .zip(&answer.replies)
            .filter_map(refused)
            .collect()
    }
}

/// Whose command it is, of whatever kind.
fn lease_of(command: &Command) -> Option<LeaseId> {
    match command {
        Command::Renew(Renew { lease, .. }) => Some(*lease),
        command => asker(command),
    }
}

/// Whose command it is, if it is one of the line's.
fn asker(command: &Command) -> Option<LeaseId> {
    match command {
        Command::Acquire(acquire) => Some(acquire.claim.lease),
        Command::Release(Release { claim, .. }) => Some(claim.lease),
        _ => None,
    }
}

/// Releases alone, for which the store does not look at its clock.
fn is_timeless(batch: &[Op]) -> bool {
    batch.iter().all(is_release) && !batch.is_empty()
}

/// With others a release is late as they are. One alone, or with its like, is never late.
fn is_late_with_others(batch: &[Op], op: &Op, time: ServerTime) -> bool {
    !is_timeless(batch) && is_release(op) && time > op.not_after
}

fn is_release(op: &Op) -> bool {
    matches!(op.command, Command::Release(_))
}
