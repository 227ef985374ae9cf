//! The way to a server and back, and what the server does.

use std::sync::Arc;

use leasehold_engine::engine::{Input, RequestId, ServerId};
use leasehold_engine::protocol::{
    Admit, BatchReply, Command, Extend, LeaseId, Op, Renew, Reply, Retire,
};
use leasehold_engine::time::{ServerTime, Timestamp};
use leasehold_engine::{Error, ErrorKind};

use crate::clock::{MILLI, Moment};
use crate::host::{Sent, SharedSent};
use crate::line::Step;
use crate::sabotage::Sabotage;
use crate::shared;
use crate::world::{Happening, Process, World};

/// Requests on their way to a server.
impl World {
    pub(crate) fn send(
        &mut self,
        host: usize,
        asked: ServerId,
        (request, batch, give_up): (RequestId, Vec<Op>, Timestamp),
    ) {
        let book = &self.hosts[host].book;
        let bound = |op: &Op| match &op.command {
            Command::Acquire(acquire) | Command::Admit(Admit(acquire))
                if !self.plan.is_quorum() =>
            {
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
        let known = asked == self.name_of(host, server);
        let link = &self.hosts[host].links[server];
        let (connection, told) = (link.connection, link.told);
        // Requests that were due before the host was told, and requests for the server's time alone, may
        // still leave.
        let nowhere = link.told_down && known && !batch.is_empty();
        self.checks.ensure("progress", !nowhere, || {
            format!("host {host} sends although it has no connection")
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
        let known = sent.asked == self.name_of(host, server);
        let delay = self.way(host, server);
        let faults = &self.plan.faults;
        let (lost, refused) = (faults.lost_requests, faults.refusals);
        let behind = self.servers[server].behind > 0;
        let link = &mut self.hosts[host].links[server];
        // A server's clock says nothing of another server's, so this host must not count as one that knows of
        // a failover.
        let unaware = behind && link.changes != link.told;
        if !known && !link.up {
            let error = Error::new(ErrorKind::Unavailable, "no connection to the server");
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
            let error = Error::new(kind, "the server is out of service");
            return self.reply_at(arrival + delay, &sent, Err(error));
        }
        self.schedule(arrival, Happening::Arrival(sent.clone()));
        if self.random.chance(self.plan.faults.repeats) {
            let most = [1, 100, 2_000][usize::try_from(self.random.below(3)).unwrap_or(0)];
            let again = arrival + self.random.below(most) * MILLI;
            self.schedule(again, Happening::Again(sent));
        }
        if self.random.chance(self.plan.faults.cuts_at_sending) {
            let at = self.now + self.random.below(delay + MILLI);
            self.schedule(at, Happening::Cut(host, server, connection));
        }
    }

    /// Returns how long a message takes from a host to a server, or back.
    pub(crate) fn way(&mut self, host: usize, server: usize) -> Moment {
        let slower = self.plan.faults.slower(host, server);
        if slower > 0 {
            self.checks.saw("a link was slow");
        }
        slower + self.delay()
    }

    pub(crate) fn comes_not_back(&mut self, host: usize, server: usize) -> bool {
        let is_lost = self.plan.faults.is_one_sided(host, server);
        if is_lost {
            self.checks.saw("a link was one-sided");
        }
        is_lost
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

    /// Loses a reply. The driver reports an error when the engine has given up, or slightly earlier. For a
    /// quorum's member it may report nothing at all.
    pub(crate) fn no_reply(&mut self, sent: &SharedSent) {
        self.checks.saw("message lost");
        let give_up = self.hosts[sent.host].clock.when(sent.give_up);
        let (kind, at) = match self.random.below(if self.plan.is_quorum() { 4 } else { 3 }) {
            0 => (
                ErrorKind::Unavailable,
                self.now + self.random.below(50 * MILLI),
            ),
            1 => (ErrorKind::Timeout, give_up),
            2 => (ErrorKind::Timeout, give_up + self.random.below(300 * MILLI)),
            _ => return,
        };
        let input = Input::Reply {
            server: sent.asked,
            request: sent.request,
            result: Err(Error::new(kind, "no reply arrived")),
        };
        self.deliver_at(at, sent.host, None, input);
    }

    fn reply_at(&mut self, at: Moment, sent: &SharedSent, result: Result<BatchReply, Error>) {
        let link = &mut self.hosts[sent.host].links[sent.server];
        let at = link.last_reply.max(at);
        link.last_reply = at;
        let input = Input::Reply {
            server: self.name_told(sent.host, sent.server),
            request: sent.request,
            result,
        };
        self.deliver_at(at, sent.host, Some(sent.clone()), input);
    }

    pub(crate) fn deliver_at(
        &mut self,
        at: Moment,
        host: usize,
        by: Option<SharedSent>,
        input: Input,
    ) {
        let delivery = Happening::Delivery(self.process(host), by, input);
        self.schedule(at, delivery);
    }
}

/// Requests at a server.
impl World {
    pub(crate) fn arrive(&mut self, sent: SharedSent) {
        if self.servers[sent.server].frozen {
            self.servers[sent.server].inbox.push_back(sent);
        } else {
            self.serve(&sent, false);
        }
    }

    pub(crate) fn thaw(&mut self, server: usize) {
        if !std::mem::take(&mut self.servers[server].frozen) {
            return;
        }
        self.trace(|_| format!("server {server} goes on"));
        for sent in std::mem::take(&mut self.servers[server].inbox) {
            self.serve(&sent, true);
        }
    }

    /// Executes a batch at one moment.
    fn serve(&mut self, sent: &SharedSent, was_frozen: bool) {
        let (host, server) = (sent.host, sent.server);
        let time = self.time_of(server);
        let current = self.hosts[host].links[server].connection == sent.connection;
        let key = sent.batch.first().and_then(|op| op.command.key());
        if let Some(key) = key.filter(|key| !self.serves(server, key)) {
            // A client that has another connection by now does not ask another server.
            if current {
                self.redirect(sent, self.server_of(key));
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
            if reply != Ok(Reply::Late) {
                self.look_at_acting(current, was_frozen);
            }
            if reply == Ok(Reply::Forgot) {
                self.checks.saw("a server said that it forgot");
                replies = vec![reply; sent.batch.len()];
                break;
            }
            replies.push(self.plan.told(reply));
        }
        self.trace(|_| format!("    {replies:?}"));
        if !current {
            return;
        }
        let delay = self.way(host, server);
        let lost = self.plan.faults.lost_replies;
        let black_hole = self.hosts[host].links[server].black_hole;
        if black_hole > self.now || self.comes_not_back(host, server) || self.random.chance(lost) {
            return self.no_reply(sent);
        }
        let reads_time = |(op, reply): (&Op, &Result<Reply, Error>)| {
            !matches!(
                (&op.command, reply),
                (Command::Release(_), Ok(Reply::Released))
            )
        };
        let tells_time = !is_timeless || sent.batch.iter().zip(&replies).any(reads_time);
        let mut reply = BatchReply {
            time: tells_time.then_some(time),
            replies,
        };
        if self.plan.sabotage == Sabotage::WrongAnchor && tells_time {
            reply.time = Some(ServerTime::from_micros(time.as_micros() - 900_000));
        }
        self.reply_at(self.now + delay, sent, Ok(reply));
    }

    fn look_at_acting(&mut self, current: bool, was_frozen: bool) {
        if !current {
            self.checks.saw("executed after a reconnect");
        }
        if was_frozen {
            self.checks.saw("frozen server acted late");
        }
    }

    /// Executes a batch once more, as if a client or a proxy repeated an unanswered one; its reply is
    /// dropped. An acquisition that no one wants any more would take a free lock or a place in line for no
    /// one. That is a known limit, so it is not checked here.
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
                Command::Admit(Admit(acquire)) => {
                    let key = &acquire.key;
                    let held = self.all_stored(server, key);
                    held.iter().any(|(lease, _)| *lease == acquire.claim.lease)
                }
                _ => true,
            };
            let key = op.command.key();
            let harmless = harmless && key.is_none_or(|key| self.serves(server, key));
            if harmless && self.execute(sent, &op, bound) != Ok(Reply::Late) {
                self.checks.saw("executed twice");
            }
        }
    }

    /// Executes one operation and checks its effect.
    fn execute(&mut self, sent: &Sent, op: &Op, bound: Timestamp) -> Result<Reply, Error> {
        let (host, server) = (sent.host, sent.server);
        let time = self.time_of(server);
        if let Some(reply) = self.withheld(op) {
            return Ok(reply);
        }
        let Some(key) = op.command.key() else {
            return self.does(time, server, op.clone());
        };
        let (before, asker) = (self.stored_at(server, key), asker(&op.command));
        let place = asker.and_then(|lease| self.arrival(server, key, lease));
        let former = self.former(server, key);
        let is_shared = self.plan.kind(key).is_some();
        let state = self.state_at(server, key);
        let reply = self.sabotaged(time, (host, server), op);
        if reply == Ok(Reply::Late) {
            if op.not_after > ServerTime::from_micros(0) {
                self.checks.saw("came late");
            }
            return reply;
        }
        self.executed += 1;
        let after = self.stored_at(server, key);
        let new_place = asker.and_then(|lease| self.arrival(server, key, lease));
        let joined = new_place.is_some() && new_place != place;
        let acts = match (&op.command, &reply) {
            (_, Ok(Reply::Held(_) | Reply::Renewed { .. } | Reply::Wanted { .. })) => true,
            (_, reply) if shared::acts(reply) => true,
            (Command::Acquire(acquire), _) => self.plan.is_quorum() && acquire.waits,
            _ => false,
        };
        if joined || before != after || acts {
            self.check_in_time(sent, op, bound);
        }
        if let (Command::AskYield(ask), Ok(Reply::Asked)) = (&op.command, &reply) {
            let token = Some(ask.token).filter(|_| !self.plan.is_quorum());
            self.checks.requested(key, token);
            self.checks.saw("asked to yield");
        }
        let change = is_shared.then(|| self.change_of(server, key, state));
        let tenure = self.servers[server].store.tenure(time, key);
        let step = Step {
            server,
            time,
            command: &op.command,
            before,
            after,
            expires: tenure.map(|tenure| tenure.expires),
            reply: &reply,
            kept_place: place.is_some() && place == new_place,
            change: change.as_ref(),
        };
        self.forget_kept(&step);
        self.checks.stays_taken(&step);
        if let Some(former) = former {
            self.follow_vote(host, &step, former);
        } else {
            let remembers = self.plan.remembers();
            self.checks.executed(&step, remembers);
            self.follow_kept(host, &step);
            self.check_renewed(host, &step);
        }
        self.dispatch_pushes(&step);
        self.watch_handover(&step);
        self.watch_holder(&step);
        self.watch_parts(&step);
        reply
    }

    /// Checks I6: nothing is done once the host has given it up. A release only frees its own lease, however
    /// late, since no one relies on that lease any more.
    pub(crate) fn check_in_time(&mut self, sent: &Sent, op: &Op, bound: Timestamp) {
        let now = self.hosts[sent.host].clock.at(self.now);
        if sent.redirected {
            // By the clock of the server that was asked first it may have been in time.
            if let Some(lease) = lease_of(&op.command).filter(|_| now > bound) {
                self.checks.stray.insert(lease);
                self.checks.saw("acted late by another server's clock");
            }
        } else if !is_release(op) && !self.is_behind(sent.server) {
            self.checks.in_time(&op.command, now, bound);
        }
    }

    /// Checks I5: a renewed lease is one that the host holds.
    fn check_renewed(&mut self, host: usize, step: &Step) {
        let (Command::Renew(Renew { lease, .. }), Ok(Reply::Renewed { .. } | Reply::Wanted { .. })) =
            (step.command, step.reply)
        else {
            return;
        };
        let after = step.after;
        let book = &self.hosts[host].book;
        let lock = book
            .attempts
            .get(lease)
            .and_then(|attempt| book.locks.get(&attempt.lock));
        let held = lock.and_then(|lock| lock.held.as_ref());
        let held = held
            .filter(|held| held.lease == *lease)
            .map(|held| held.token);
        let same = held.is_none_or(|held| after.is_some_and(|(_, token)| token == held));
        self.checks.ensure("I5", same, || {
            format!("host {host} holds {lease} with {held:?} and renewed {after:?}")
        });
    }
}

/// Replies on their way back to the host.
impl World {
    pub(crate) fn deliver(&mut self, process: Process, by: Option<SharedSent>, input: Input) {
        let (host, _) = process;
        let state = &self.hosts[host];
        let is_old = |sent: &SharedSent| state.links[sent.server].connection != sent.connection;
        if self.process(host) != process || by.as_ref().is_some_and(is_old) {
            return;
        }
        if let Some(sent) = by
            .as_ref()
            .filter(|sent| sent.asked != self.name_of(host, sent.server))
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

    /// Returns the leases that a pending reply reports as gone. A member of a quorum alone cannot report
    /// that.
    fn refused_renewals(&self, sent: &Sent, input: &Input) -> Vec<LeaseId> {
        let Input::Reply {
            result: Ok(answer), ..
        } = input
        else {
            return Vec::new();
        };
        let host = &self.hosts[sent.host];
        if self.plan.is_quorum() || sent.redirected || host.links[sent.server].told != sent.told {
            return Vec::new();
        }
        // While the server would still act, the host has not given the command up.
        let time = self.time_of(sent.server);
        let refused = |(op, reply): (&Op, &Result<Reply, Error>)| match (&op.command, reply) {
            (
                Command::Renew(Renew { lease, .. })
                | Command::Extend(Extend {
                    renew: Renew { lease, .. },
                    ..
                }),
                Ok(Reply::Gone | Reply::Taken),
            ) => (time < op.not_after).then_some(*lease),
            _ => None,
        };
        sent.batch
            .iter()
            .zip(&answer.replies)
            .filter_map(refused)
            .collect()
    }
}

/// Returns the lease of a command of any kind.
pub(crate) fn lease_of(command: &Command) -> Option<LeaseId> {
    match command {
        Command::Accept(accept) => Some(accept.claim.lease),
        Command::Extend(extend) => Some(extend.renew.lease),
        Command::Renew(Renew { lease, .. }) | Command::Retire(Retire { lease, .. }) => Some(*lease),
        command => asker(command),
    }
}

/// Returns the lease of a command that concerns the line.
fn asker(command: &Command) -> Option<LeaseId> {
    match command {
        Command::Acquire(acquire) => Some(acquire.claim.lease),
        Command::Release(release) => Some(release.claim.lease),
        command => shared::claim_of(command).map(|claim| claim.lease),
    }
}

/// True for a batch of releases only; the store does not check its clock for these.
fn is_timeless(batch: &[Op]) -> bool {
    batch.iter().all(is_release) && !batch.is_empty()
}

/// True if a release is late together with other operations. A batch of releases alone is never late.
fn is_late_with_others(batch: &[Op], op: &Op, time: ServerTime) -> bool {
    !is_timeless(batch) && is_release(op) && time > op.not_after
}

fn is_release(op: &Op) -> bool {
    matches!(op.command, Command::Release(_) | Command::Vacate(_))
}
