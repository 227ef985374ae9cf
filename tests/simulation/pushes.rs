//! What servers tell hosts without being asked: on a connection of its own, which keeps its order,
//! loses messages with and without a notice, and breaks. It may lead to another server of a group
//! or of a cluster: then the one that publishes does not know that anybody hears.

use leasehold::engine::{Input, ServerId};
use leasehold::protocol::{ClientId, Command, ForceRelease, Grant, LeaseId, News, Push};

use crate::clock::{MILLI, Moment, SECOND};
use crate::line::Step;
use crate::plan::{Pushes, Sabotage};
use crate::world::{Happening, World};

/// A host's subscription.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    /// Which one: counted on when it breaks.
    pub(crate) connection: u64,
    pub(crate) up: bool,
    /// Where it leads: the servers of a cluster pass on to one another what is published.
    pub(crate) server: usize,
    /// Whose messages the engine wants to hear.
    asked: Vec<ServerId>,
    /// When the host was last told that it is there.
    pub(crate) reported: Option<Moment>,
    last: Moment,
}

impl World {
    /// The engine wants to hear.
    pub(crate) fn subscribe(&mut self, host: usize, server: ServerId) {
        let ear = &mut self.hosts[host].ear;
        ear.asked.push(server);
        if ear.asked.len() > 1 {
            // One subscription does for all.
            let at = self.now + self.delay();
            if self.hosts[host].ear.up {
                self.hear_at(at, host, Input::Subscribed { server });
            }
            return;
        }
        let most = if self.plan.calm { 500 } else { 2_000 };
        let delay = self.random.below(most) * self.random.below(MILLI + 1);
        let life = self.hosts[host].life;
        let at = self.now + delay;
        if self.plan.sabotage == Sabotage::EarlyBarrier {
            // The one before is told, the other happens much later.
            self.hear_again(at, host);
            return self.schedule(at + 15 * SECOND, Happening::Listen { host, life });
        }
        self.schedule(at, Happening::Listen { host, life });
    }

    /// The subscription is there; the host is told so after it.
    pub(crate) fn listen(&mut self, host: usize, life: u64) {
        let state = &mut self.hosts[host];
        if state.life != life || std::mem::replace(&mut state.ear.up, true) {
            return;
        }
        let client = state.client;
        let servers = u64::try_from(self.servers.len()).unwrap_or(1);
        let server = usize::try_from(self.random.below(servers)).unwrap_or(0);
        self.hosts[host].ear.server = server;
        self.trace(|_| format!("server {server}: host {host} has subscribed"));
        if self.plan.pushes != Pushes::Uncounted {
            self.servers[server].store.subscribe(client);
            self.checks.listeners.insert((server, client));
        }
        let at = self.now + self.delay();
        self.hear_again(at, host);
    }

    /// A subscription breaks. The server may go on for a while as if it were there, and the host
    /// may notice only when it is there again.
    pub(crate) fn break_ear(&mut self, host: usize) {
        let ear = &mut self.hosts[host].ear;
        if !std::mem::take(&mut ear.up) {
            return;
        }
        ear.connection += 1;
        self.trace(|_| format!("host {host}: the subscription breaks"));
        let (client, life) = (self.hosts[host].client, self.hosts[host].life);
        self.hang_up(client, self.hosts[host].ear.server, 3_000);
        let mut at = self.now + self.random.below(1_500) * MILLI;
        if self.random.chance(60) {
            for server in self.hosts[host].ear.asked.clone() {
                let (by, input) = (None, Input::Unsubscribed { server });
                let notice = Happening::Delivery {
                    host,
                    life,
                    by,
                    input,
                };
                self.schedule(at, notice);
            }
            at += self.random.below(2_500) * MILLI;
        }
        // Later than the notice, though both are due at the same moment.
        self.schedule(at, Happening::Listen { host, life });
        self.checks.saw("subscription broke");
    }

    /// A server notices that a subscription ended, at once or as late as this.
    pub(crate) fn hang_up(&mut self, client: ClientId, server: usize, most_millis: u64) {
        let late = self.random.below(most_millis) * MILLI * self.random.below(2);
        let at = self.now + late;
        if late == 0 {
            self.forget_listener(client, server);
        } else {
            self.schedule(at, Happening::Forget { client, server });
            self.checks.saw("half-open subscription");
        }
    }

    pub(crate) fn forget_listener(&mut self, client: ClientId, server: usize) {
        let mut hosts = self.hosts.iter();
        let hears = |ear: &Ear| ear.up && ear.server == server;
        if !hosts.any(|host| host.client == client && hears(&host.ear)) {
            self.servers[server].store.unsubscribe(client);
            self.checks.listeners.remove(&(server, client));
        }
    }

    /// What a command made a server tell.
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
            if self.plan.pushes == Pushes::Lost || !self.hosts[host].ear.up {
                self.checks.saw("push lost");
                continue;
            }
            let mut at = self.now + self.delay();
            if self.random.chance(slow) {
                at += self.random.between(low, high) * MILLI;
            }
            if self.random.chance(lost) {
                self.checks.saw("push lost");
                if self.random.chance(50) {
                    at += self.random.below(1_000) * MILLI;
                    self.hear_again(at, host);
                }
                continue;
            }
            let lease = self.lease_of(host, &push);
            let push = lease.map_or(push, |lease| self.plan.pushed(lease, push));
            let server = self.pusher(step.server);
            self.hear_at(at, host, Input::Push { server, push });
        }
    }

    /// What another server of the group tells of a step.
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
            && !step.hands_over()
        {
            let grant = Grant { token, expires };
            tell(lease, News::Granted { grant, time });
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

    /// Nobody is woken by what concerns others.
    fn check_push(&mut self, host: usize, push: &Push) {
        let own = self.lease_of(host, push);
        self.checks.ensure("I7", own.is_some(), || {
            format!("host {host} is told of somebody else's lease: {push:?}")
        });
    }

    /// The host's lease that it opens for.
    fn lease_of(&self, host: usize, push: &Push) -> Option<LeaseId> {
        let mut leases = self.hosts[host].book.attempts.keys();
        leases.find(|lease| push.open(**lease).is_some()).copied()
    }

    /// The host is told that it can hear, for the first time or again.
    fn hear_again(&mut self, at: Moment, host: usize) {
        for server in self.hosts[host].ear.asked.clone() {
            self.hear_at(at, host, Input::Subscribed { server });
        }
    }

    /// On the subscription's connection nothing overtakes.
    fn hear_at(&mut self, at: Moment, host: usize, input: Input) {
        let state = &mut self.hosts[host];
        state.ear.last = state.ear.last.max(at);
        let (at, life, connection) = (state.ear.last, state.life, state.ear.connection);
        let heard = Happening::Heard {
            host,
            life,
            connection,
            input,
        };
        self.schedule(at, heard);
    }

    pub(crate) fn heard(&mut self, host: usize, life: u64, connection: u64, input: Input) {
        let state = &mut self.hosts[host];
        if state.life != life || state.ear.connection != connection {
            return;
        }
        if let Input::Subscribed { .. } = &input {
            state.ear.reported = Some(self.now);
        }
        self.checks.saw(match input {
            Input::Push { .. } => "push came",
            _ => "subscribed",
        });
        self.input(host, input);
    }
}
