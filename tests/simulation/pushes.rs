//! The pushes that servers send to hosts.
//!
//! Pushes use a connection of their own, which keeps its order, loses messages with and without notice, and
//! breaks. It may lead to another server of a group or of a cluster: then the publishing server does not know
//! that a client is subscribed. Each member of a quorum has its own connection.

use leasehold_engine::engine::{Input, ServerId};
use leasehold_engine::protocol::{ClientId, Command, ForceRelease, Grant, LeaseId, News, Push};

use crate::clock::{MILLI, Moment, SECOND};
use crate::line::Step;
use crate::plan::Pushes;
use crate::sabotage::Sabotage;
use crate::world::{Happening, Process, World};

/// A host's subscription.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    /// The number of the connection; each break increments it.
    pub(crate) connection: u64,
    pub(crate) up: bool,
    /// The server that it leads to: the servers of a cluster forward published messages to one another.
    pub(crate) server: usize,
    /// The servers whose messages the engine wants.
    asked: Vec<ServerId>,
    /// When the host was last told of the subscription.
    pub(crate) reported: Option<Moment>,
    last: Moment,
}

impl Subscription {
    pub(crate) fn new(server: usize) -> Self {
        Self {
            server,
            ..Self::default()
        }
    }
}

impl World {
    /// Returns the subscription by which a host hears a server.
    fn subscription_of(&self, server: usize) -> usize {
        if self.plan.is_quorum() { server } else { 0 }
    }

    /// Subscribes, as the engine asks.
    pub(crate) fn subscribe(&mut self, host: usize, server: ServerId) {
        let subscription = self.subscription_of(self.index_of(host, server).unwrap_or(0));
        let asked = &mut self.hosts[host].subscriptions[subscription].asked;
        let twice = asked.contains(&server);
        self.checks.ensure("progress", !twice, || {
            format!("host {host} subscribes twice to {server:?}")
        });
        asked.push(server);
        if asked.len() > 1 {
            // One subscription serves all servers.
            let at = self.now + self.delay();
            if self.hosts[host].subscriptions[subscription].up {
                self.hear_at(at, (host, subscription), Input::Subscribed { server });
            }
            return;
        }
        let most = if self.plan.calm { 500 } else { 2_000 };
        let delay = self.random.below(most) * self.random.below(MILLI + 1);
        let at = self.now + delay;
        let listen = Happening::Listen(self.process(host), subscription);
        if self.plan.sabotage == Sabotage::EarlyBarrier {
            // The host is told of an existing subscription; a new one takes much longer.
            self.hear_again(at, (host, subscription));
            return self.schedule(at + 15 * SECOND, listen);
        }
        self.schedule(at, listen);
    }

    /// Makes the subscription, and then tells the host.
    pub(crate) fn listen(&mut self, process: Process, subscription: usize) {
        let (host, _) = process;
        if self.process(host) != process || self.hosts[host].subscriptions[subscription].up {
            return;
        }
        let server = if self.plan.is_quorum() {
            subscription
        } else {
            let servers = u64::try_from(self.servers.len()).unwrap_or(1);
            usize::try_from(self.random.below(servers)).unwrap_or(0)
        };
        if self.servers[server].out_until > self.now {
            let at = self.servers[server].out_until;
            return self.schedule(at, Happening::Listen(process, subscription));
        }
        let state = &mut self.hosts[host];
        (
            state.subscriptions[subscription].up,
            state.subscriptions[subscription].server,
        ) = (true, server);
        let client = state.client;
        self.trace(|_| format!("server {server}: host {host} has subscribed"));
        if self.plan.pushes != Pushes::Uncounted {
            self.servers[server].store.subscribe(client);
            self.checks.listeners.insert((server, client));
        }
        let at = self.now + self.way(host, server);
        self.hear_again(at, (host, subscription));
    }

    /// Breaks a subscription. The server may count it for a while, and the host may notice only when it has a
    /// new one.
    pub(crate) fn break_subscription(&mut self, host: usize, subscription: usize) {
        let state = &mut self.hosts[host].subscriptions[subscription];
        if !std::mem::take(&mut state.up) {
            return;
        }
        state.connection += 1;
        let server = state.server;
        self.trace(|_| format!("host {host}: the subscription to server {server} breaks"));
        self.hang_up(self.hosts[host].client, server, 3_000);
        let mut at = self.now + self.random.below(1_500) * MILLI;
        if self.random.chance(60) {
            for server in self.hosts[host].subscriptions[subscription].asked.clone() {
                self.deliver_at(at, host, None, Input::Unsubscribed { server });
            }
            at += self.random.below(2_500) * MILLI;
        }
        // This comes after the notice, though both are due at the same moment.
        self.schedule(at, Happening::Listen(self.process(host), subscription));
        self.checks.saw("subscription broke");
    }

    /// Lets a server notice the end of a subscription, at once or up to this much later.
    pub(crate) fn hang_up(&mut self, client: ClientId, server: usize, most_millis: u64) {
        let late = self.random.below(most_millis) * MILLI * self.random.below(2);
        let at = self.now + late;
        if late == 0 {
            self.forget_listener(client, server);
        } else {
            self.schedule(at, Happening::Forget(client, server));
            self.checks.saw("half-open subscription");
        }
    }

    pub(crate) fn forget_listener(&mut self, client: ClientId, server: usize) {
        let mut hosts = self.hosts.iter();
        let hears = |subscription: &Subscription| subscription.up && subscription.server == server;
        if !hosts.any(|host| host.client == client && host.subscriptions.iter().any(hears)) {
            self.servers[server].store.unsubscribe(client);
            self.checks.listeners.remove(&(server, client));
        }
    }

    /// Removes all subscriptions of a server, and of the data that it may restart with.
    pub(crate) fn drop_listeners(&mut self, server: usize) {
        let Self {
            checks,
            hosts,
            servers,
            ..
        } = self;
        let store = &mut servers[server].store;
        for host in hosts {
            store.unsubscribe(host.client);
        }
        checks.listeners.retain(|(at, client)| {
            if *at == server {
                store.unsubscribe(*client);
            }
            *at != server
        });
    }

    /// Delivers the pushes that a command caused.
    pub(crate) fn dispatch_pushes(&mut self, step: &Step) {
        let mut pushes = self.servers[step.server].store.take_pushes();
        if self.plan.pushes == Pushes::Uncounted || self.is_cluster() {
            pushes.extend(self.pushes_elsewhere(step));
        }
        for (client, push) in pushes {
            let Some(host) = self.hosts.iter().position(|host| host.client == client) else {
                self.checks.saw("push to the dead");
                continue;
            };
            self.trace(|_| format!("    push to host {host}: {push:?}"));
            self.check_push(host, &push);
            let faults = &self.plan.faults;
            let (lost, slow) = (faults.lost_pushes, faults.slow_pushes);
            let (low, high) = self.plan.slow_push;
            let (server, subscription) = (step.server, self.subscription_of(step.server));
            let deaf = self.plan.pushes == Pushes::Lost
                || !self.hosts[host].subscriptions[subscription].up;
            if deaf || self.comes_not_back(host, server) {
                self.checks.saw("push lost");
                continue;
            }
            let mut at = self.now + self.way(host, server);
            if self.random.chance(slow) {
                at += self.random.between(low, high) * MILLI;
            }
            if self.random.chance(lost) {
                self.checks.saw("push lost");
                if self.random.chance(50) {
                    at += self.random.below(1_000) * MILLI;
                    self.hear_again(at, (host, subscription));
                }
                continue;
            }
            let push = self.pushed(host, push);
            let server = self.pusher(host, server);
            self.hear_at(at, (host, subscription), Input::Push { server, push });
        }
    }

    /// Returns the pushes that another server of the group sends for a step.
    fn pushes_elsewhere(&mut self, step: &Step) -> Vec<(ClientId, Push)> {
        let (mut pushes, time) = (Vec::new(), step.time);
        let told = &self.checks.listeners;
        let mut tell = |of: LeaseId, news| {
            let mut hosts = self.hosts.iter();
            let host = hosts.find(|host| host.book.attempts.contains_key(&of));
            let host = host.filter(|host| !told.contains(&(step.server, host.client)));
            pushes.extend(host.map(|host| (host.client, Push::new(of, news))));
        };
        if let (Some((lease, token)), Some(expires)) = (step.granted(), step.expires)
            && step.asker() != Some(lease)
            && !step.tells_of(lease)
        {
            let grant = Grant { token, expires };
            tell(lease, News::Granted { grant, time });
        }
        if let Some(change) = step.change {
            for (lease, permit) in change.admitted() {
                if step.asker() != Some(lease) && !step.tells_of(lease) {
                    let (token, expires) = (permit.token, permit.until);
                    let grant = Grant { token, expires };
                    tell(lease, News::Granted { grant, time });
                }
            }
            if let Command::ForceRelease(_) = step.command {
                for (lease, token) in change.ended(time) {
                    tell(lease, News::Revoked { token });
                }
            }
        }
        if let Some((lease, token)) = step.before {
            if let Command::ForceRelease(ForceRelease { token: meant, .. }) = step.command {
                if *meant == token {
                    tell(lease, News::Revoked { token });
                }
            } else if step.granted().is_some() && step.is_reclaim() {
                tell(lease, News::Superseded { token });
            }
        }
        if !pushes.is_empty() {
            self.checks.saw("told by another server");
        }
        pushes
    }

    /// Checks that no host is woken for other hosts' leases.
    fn check_push(&mut self, host: usize, push: &Push) {
        let mut leases = self.hosts[host].book.attempts.keys();
        // Each member of a quorum knows a lease by its own ID; half of the ID is common to all.
        let is_quorum = self.plan.is_quorum();
        let is_of = |lease: &LeaseId| {
            is_quorum && lease.half() == push.lease || push.open(*lease).is_some()
        };
        let own = leases.any(is_of);
        self.checks.ensure("I7", own, || {
            format!("host {host} is told of another host's lease: {push:?}")
        });
    }

    /// Tells the host that it is subscribed, for the first time or again.
    fn hear_again(&mut self, at: Moment, (host, subscription): (usize, usize)) {
        for server in self.hosts[host].subscriptions[subscription].asked.clone() {
            self.hear_at(at, (host, subscription), Input::Subscribed { server });
        }
    }

    /// Delivers a message in order: none overtakes another on a subscription's connection.
    fn hear_at(&mut self, at: Moment, (host, subscription): (usize, usize), input: Input) {
        let process = self.process(host);
        let state = &mut self.hosts[host].subscriptions[subscription];
        state.last = state.last.max(at);
        let (at, connection) = (state.last, state.connection);
        self.schedule(
            at,
            Happening::Heard(process, (subscription, connection), input),
        );
    }

    pub(crate) fn heard(
        &mut self,
        process: Process,
        (subscription, connection): (usize, u64),
        input: Input,
    ) {
        let (host, _) = process;
        if self.process(host) != process
            || self.hosts[host].subscriptions[subscription].connection != connection
        {
            return;
        }
        if let Input::Subscribed { .. } = &input {
            self.hosts[host].subscriptions[subscription].reported = Some(self.now);
        }
        self.checks.saw(match input {
            Input::Push { .. } => "push came",
            _ => "subscribed",
        });
        self.input(host, input);
    }
}
