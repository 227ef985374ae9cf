//! The way to a server and back.

use std::sync::Arc;

use leasehold::engine::{Input, RequestId, ServerId};
use leasehold::protocol::{BatchReply, Command, Op, Push, Reply};
use leasehold::time::Timestamp;
use leasehold::{Error, ErrorKind};

use crate::clock::{MILLI, Moment};
use crate::host::{Sent, SharedSent};
use crate::world::{Happening, World};

/// To a server.
impl World {
    pub(crate) fn send(
        &mut self,
        host: usize,
        server: ServerId,
        (request, batch, give_up): (RequestId, Vec<Op>, Timestamp),
    ) {
        for op in &batch {
            self.check_sent(host, op);
        }
        let index = self.index_of(host, server);
        self.checks.ensure("route", index.is_some(), || {
            format!("host {host} sends to {server:?}")
        });
        let Some(server) = index else { return };
        let sent = Arc::new(Sent {
            host,
            server,
            connection: self.hosts[host].links[server].connection,
            request,
            batch,
            give_up,
        });
        let delay = self.way(host, server);
        let (lost, refused) = (self.plan.faults.lost_requests, self.plan.faults.refusals);
        let link = &mut self.hosts[host].links[server];
        if !link.up || link.black_hole > self.now || self.random.chance(lost) {
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
        self.schedule(arrival, Happening::Arrival(sent));
    }

    /// How long it takes from a host to a server, or back.
    fn way(&mut self, host: usize, server: usize) -> Moment {
        let slower = self.plan.faults.slower(host, server);
        if slower > 0 {
            self.checks.saw("a link was slow");
        }
        slower + self.delay()
    }

    fn comes_not_back(&mut self, host: usize, server: usize) -> bool {
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

    /// Nothing comes back; the driver says so when the engine has given up, or somewhat earlier, or
    /// never.
    fn no_reply(&mut self, sent: &Sent) {
        self.checks.saw("message lost");
        let give_up = self.hosts[sent.host].clock.when(sent.give_up);
        let (kind, at) = match self.random.below(4) {
            0 => (
                ErrorKind::Unavailable,
                self.now + self.random.below(50 * MILLI),
            ),
            1 => (ErrorKind::Timeout, give_up),
            2 => (ErrorKind::Timeout, give_up + self.random.below(300 * MILLI)),
            _ => return,
        };
        let input = Input::Reply {
            server: self.name_of(sent.host, sent.server),
            request: sent.request,
            result: Err(Error::new(kind, "no answer came")),
        };
        self.deliver_at(at, sent.host, None, input);
    }

    fn reply_at(&mut self, at: Moment, sent: &SharedSent, result: Result<BatchReply, Error>) {
        let link = &mut self.hosts[sent.host].links[sent.server];
        let at = link.last_reply.max(at);
        link.last_reply = at;
        let input = Input::Reply {
            server: self.name_of(sent.host, sent.server),
            request: sent.request,
            result,
        };
        self.deliver_at(at, sent.host, Some(sent.clone()), input);
    }

    fn deliver_at(&mut self, at: Moment, host: usize, by: Option<SharedSent>, input: Input) {
        let delivery = Happening::Delivery {
            host,
            life: self.hosts[host].life,
            by,
            input,
        };
        self.schedule(at, delivery);
    }

    pub(crate) fn deliver(&mut self, host: usize, life: u64, by: Option<&Sent>, input: Input) {
        let state = &self.hosts[host];
        let is_old = |sent: &Sent| state.links[sent.server].connection != sent.connection;
        if state.life == life && !by.is_some_and(is_old) {
            self.input(host, input);
        }
    }
}

/// At a server.
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

    /// Executes a batch, all at one moment.
    fn serve(&mut self, sent: &SharedSent, was_frozen: bool) {
        let (host, server) = (sent.host, sent.server);
        self.trace(|_| format!("server {server}, for host {host}: {:?}", sent.batch));
        let time = self.time_of(server);
        let is_timeless = !sent.batch.is_empty() && sent.batch.iter().all(is_release);
        let earliest = sent.batch.iter().map(|op| op.not_after).min();
        let mut replies = Vec::with_capacity(sent.batch.len());
        for op in &sent.batch {
            let op = Op {
                command: op.command.clone(),
                not_after: earliest.unwrap_or(op.not_after),
            };
            // With others a release is late as they are.
            let is_late = !is_timeless && is_release(&op) && time > op.not_after;
            let reply = if is_late {
                Ok(Reply::Late)
            } else {
                self.execute(sent, &op)
            };
            if was_frozen && reply != Ok(Reply::Late) {
                self.checks.saw("frozen server acted late");
            }
            if reply == Ok(Reply::Forgot) {
                self.checks.saw("a server said that it forgot");
                replies = vec![reply; sent.batch.len()];
                break;
            }
            replies.push(reply);
            self.dispatch_pushes(server);
        }
        self.trace(|_| format!("    {replies:?}"));
        let link = &self.hosts[host].links[server];
        if link.connection != sent.connection {
            return self.checks.saw("executed after a reconnect");
        }
        let (lost, black_hole) = (self.plan.faults.lost_replies, link.black_hole);
        if black_hole > self.now || self.comes_not_back(host, server) || self.random.chance(lost) {
            return self.no_reply(sent);
        }
        let tells_time = !is_timeless || replies.iter().any(|reply| reply != &Ok(Reply::Released));
        let reply = BatchReply {
            time: tells_time.then_some(time),
            replies,
        };
        let at = self.now + self.way(host, server);
        self.reply_at(at, sent, Ok(reply));
    }
}

fn is_release(op: &Op) -> bool {
    matches!(op.command, Command::Release(_))
}

/// What servers tell hosts without being asked: on a connection of its own, which keeps its order,
/// loses messages with and without a notice, and breaks.
impl World {
    /// The engine wants to hear.
    pub(crate) fn subscribe(&mut self, host: usize, server: ServerId) {
        let Some(server) = self.index_of(host, server) else {
            return;
        };
        let ear = &mut self.hosts[host].ears[server];
        let twice = std::mem::replace(&mut ear.wanted, true);
        self.checks.ensure("progress", !twice, || {
            format!("host {host} subscribes twice to server {server}")
        });
        let delay = self.random.below(500) * self.random.below(MILLI + 1);
        self.listen_at(self.now + delay, host, server);
    }

    fn listen_at(&mut self, at: Moment, host: usize, server: usize) {
        let listen = Happening::Listen {
            host,
            life: self.hosts[host].life,
            server,
            connection: self.hosts[host].ears[server].connection,
        };
        self.schedule(at, listen);
    }

    /// The subscription is there; the host is told so after it.
    pub(crate) fn listen(
        &mut self,
        (host, life): (usize, u64),
        (server, connection): (usize, u64),
    ) {
        let state = &mut self.hosts[host];
        let ear = &mut state.ears[server];
        if state.life != life || ear.connection != connection {
            return;
        }
        if self.servers[server].out_until > self.now {
            let at = self.servers[server].out_until;
            return self.listen_at(at, host, server);
        }
        ear.up = true;
        self.servers[server].store.subscribe(state.client);
        let at = self.now + self.way(host, server);
        let server = self.name_of(host, server);
        self.hear_at(at, host, Input::Subscribed { server });
    }

    /// A subscription breaks; the server notices at once, the host perhaps.
    pub(crate) fn break_ear(&mut self, host: usize, server: usize) {
        let state = &mut self.hosts[host];
        let ear = &mut state.ears[server];
        if !std::mem::take(&mut ear.up) {
            return;
        }
        ear.connection += 1;
        self.servers[server].store.unsubscribe(state.client);
        self.checks.saw("subscription broke");
        if self.random.chance(60) {
            let server = self.name_of(host, server);
            self.input(host, Input::Unsubscribed { server });
        }
        let at = self.now + self.random.below(2_500) * MILLI;
        self.listen_at(at, host, server);
    }

    fn dispatch_pushes(&mut self, server: usize) {
        for (client, push) in self.servers[server].store.take_pushes() {
            self.dispatch_push(server, client, push);
        }
    }

    fn dispatch_push(&mut self, server: usize, client: leasehold::protocol::ClientId, push: Push) {
        let Some(host) = self.hosts.iter().position(|host| host.client == client) else {
            return self.checks.saw("push to the dead");
        };
        self.trace(|_| format!("    push to host {host}: {push:?}"));
        let faults = &self.plan.faults;
        let (lost, slow) = (faults.lost_pushes, faults.slow_pushes);
        if !self.plan.pushes || self.comes_not_back(host, server) || self.random.chance(lost) {
            return self.checks.saw("push lost");
        }
        let mut at = self.now + self.way(host, server);
        if self.random.chance(slow) {
            at += self.random.between(100, 5_000) * MILLI;
        }
        let server = Some(self.name_of(host, server));
        self.hear_at(at, host, Input::Push { server, push });
    }

    /// On the subscription's connection nothing overtakes.
    fn hear_at(&mut self, at: Moment, host: usize, input: Input) {
        let server = match &input {
            Input::Push {
                server: Some(server),
                ..
            }
            | Input::Subscribed { server } => self.index_of(host, *server),
            _ => None,
        };
        let Some(server) = server else { return };
        let state = &mut self.hosts[host];
        let ear = &mut state.ears[server];
        ear.last = ear.last.max(at);
        let heard = Happening::Heard {
            host,
            life: state.life,
            server,
            connection: ear.connection,
            input,
        };
        let at = ear.last;
        self.schedule(at, heard);
    }

    pub(crate) fn heard(
        &mut self,
        (host, life): (usize, u64),
        (server, connection): (usize, u64),
        input: Input,
    ) {
        let state = &self.hosts[host];
        if state.life != life || state.ears[server].connection != connection {
            return;
        }
        self.checks.saw(match input {
            Input::Push { .. } => "push came",
            _ => "subscribed",
        });
        self.input(host, input);
    }
}
