//! Takes in what servers report about locks and leases, and what happens to servers.

use std::time::Duration;

use super::acquiring::HandedOver;
use super::attempt::Outcome;
use super::renewing::Renewing;
use super::{Single, line};
use crate::engine::ctx::Serial;
use crate::engine::front::{Backend as _, Contender, Locks, Next, Phase, Tenure, Who};
use crate::engine::io::ServerId;
use crate::engine::servers::Servers;
use crate::error::Error;
use crate::event::LossReason;
use crate::protocol::{HalfId, LeaseId, LockKey, News, Push, Reply};
use crate::time::Timestamp;
use crate::token::FencingToken;

impl Contender<Single> {
    /// True if this attempt is in flight.
    fn awaits(&self, attempt: Serial) -> bool {
        let own = match &self.phase {
            Phase::Acquiring(acquiring) => &acquiring.attempt,
            Phase::Held(tenure) => &tenure.kept.attempt,
        };
        let under_way = own.under_way();
        under_way.is_some_and(|flight| flight.attempt == attempt)
    }

    /// Takes in the outcome of the attempt in flight.
    fn landed(&mut self, env: &mut Single, outcome: Outcome) -> Next<Single> {
        match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring.landed(env, &mut self.lease, outcome),
            Phase::Held(tenure) => tenure.landed(env, &self.lease, outcome),
        }
    }

    /// Asks at once, because the known state of the lock may be out of date.
    fn ask_again(&mut self, env: &mut Single) -> Next<Single> {
        match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring.ask_now(env, &self.lease),
            Phase::Held(_) => Next::Stay,
        }
    }
}

/// Replies, pushes and timers.
impl Locks<Single> {
    pub(super) fn release_time(&mut self, env: &mut Single, id: HalfId) {
        self.releases.time(env, &mut self.handles, id);
    }

    pub(super) fn contender_landed(&mut self, env: &mut Single, (id, outcome): (HalfId, Outcome)) {
        let contender = self.contenders.get_mut(&id);
        match contender.filter(|contender| contender.awaits(outcome.attempt)) {
            Some(contender) => match contender.landed(env, outcome) {
                Next::Stay => contender.settle(&mut env.cx),
                next => self.follow(env, id, next),
            },
            None => {
                if let Ok((reply, _)) = outcome.result {
                    self.resolve_doubt(env, id, (outcome.attempt, &reply));
                }
            }
        }
    }

    pub(super) fn release_landed(&mut self, env: &mut Single, landed: (HalfId, Outcome)) {
        let (server, asked) = (landed.1.server, landed.1.left);
        let next = match &landed.1.result {
            Ok((reply, time)) => HandedOver::read(reply, *time),
            Err(_) => None,
        };
        self.releases.landed(env, &mut self.handles, landed);
        if let Some(next) = next {
            self.handed_over(env, (server, asked), next);
        }
    }

    /// Asks for a waiter's lock at once: the server may have handed it over, and the waiter did not hear.
    pub(in crate::engine) fn ask_now(&mut self, env: &mut Single, lease: LeaseId) {
        self.step(env, lease.half(), Contender::ask_again);
    }

    /// Limits the age of a lease of a quorum's member, which was a vote until now. It counts from `began`.
    pub(in crate::engine) fn limit(
        &mut self,
        env: &mut Single,
        lease: LeaseId,
        (began, age): (Timestamp, Duration),
    ) {
        self.step(env, lease.half(), |contender, _| {
            if let Contender {
                lease: who,
                phase: Phase::Held(tenure),
                ..
            } = contender
                && who.lease == lease
            {
                who.limit(age);
                tenure.began = began;
                tenure.deadline = tenure.deadline.min(tenure.ends(&who.spec));
            }
            Next::Stay
        });
    }

    /// Settles the doubt about an attempt to acquire, whose reply has arrived.
    fn resolve_doubt(&mut self, env: &mut Single, id: HalfId, (attempt, reply): (Serial, &Reply)) {
        let contender = self.contenders.get_mut(&id);
        if let Some((_, tenure)) = contender.and_then(|contender| contender.tenure()) {
            tenure.resolve_doubt(env.cx.now, attempt, reply);
        }
        self.releases
            .resolve_doubt(env, &mut self.handles, (attempt, reply));
    }

    pub(super) fn pushed(&mut self, env: &mut Single, (server, push): (Option<ServerId>, &Push)) {
        let id = push.lease;
        let contender = self.contenders.get(&id).map(|contender| &contender.lease);
        let lease = contender.map(|who| who.lease);
        let Some(lease) = lease.or_else(|| self.releases.lease(id)) else {
            return;
        };
        let only = |who: &Who| env.servers.of(&who.spec.key);
        let server = server
            .or_else(|| contender.map(only))
            .unwrap_or(ServerId::ONLY);
        // A push that does not open comes from a stranger: anybody may publish.
        match push.open(lease) {
            Some(News::Granted { grant, time }) => {
                let handed = HandedOver {
                    lease,
                    grant,
                    time,
                    admission: None,
                };
                self.handed_over(env, (server, None), handed);
            }
            Some(News::Revoked { token }) => {
                self.taken_away(env, id, (token, LossReason::Revoked));
            }
            Some(News::Completed { .. }) => self.step(env, id, Contender::ask_again),
            Some(News::Superseded { token }) => {
                self.taken_away(env, id, (token, LossReason::Superseded));
            }
            Some(News::Wanted { token }) => {
                self.step(env, id, |contender, env| {
                    if let Some((who, tenure)) = contender.tenure()
                        && tenure.token == token
                    {
                        tenure.check_again(env, who);
                    }
                    Next::Stay
                });
            }
            None => {}
        }
    }

    /// Takes in that the lock was handed to this lease. The news came by a push, or in the reply to a request
    /// that left at `asked`.
    pub(super) fn handed_over(
        &mut self,
        env: &mut Single,
        (server, asked): (ServerId, Option<Timestamp>),
        handed: HandedOver,
    ) {
        let lease = handed.lease;
        let id = lease.half();
        if !self.contenders.contains_key(&id) {
            // The acquisition was canceled, and a late attempt of it got the lock.
            return self.releases.hasten(env, &mut self.handles, id);
        }
        self.step(env, id, |contender, env| match &mut contender.phase {
            Phase::Acquiring(acquiring) if contender.lease.lease == lease => {
                acquiring.granted(env, &contender.lease, (server, asked), handed)
            }
            Phase::Acquiring(_) | Phase::Held(_) => Next::Stay,
        });
    }

    /// Watches all held locks of this server, which from now on reports changes of keys that it was asked to
    /// read.
    pub(super) fn watch_all(&mut self, env: &mut Single, server: ServerId) {
        let held = |contender: &Contender<Single>| !contender.is_acquiring();
        for id in self.contenders_of(&env.servers, server, &held) {
            if let Some((who, tenure)) = self.contenders.get_mut(&id).and_then(|held| held.tenure())
            {
                tenure.watch(env, who);
            }
        }
    }

    /// Reads the keys that are due.
    pub(super) fn read_due(&mut self, env: &mut Single) {
        for id in env.watch.take_due(&mut env.cx) {
            if let Some((who, tenure)) = self.contenders.get_mut(&id).and_then(|held| held.tenure())
            {
                tenure.read(env, who);
            }
        }
        env.watch.flush(&mut env.cx);
    }

    /// Takes in that another client may have changed this lock, or any lock if there is no key.
    pub(super) fn changed(&mut self, env: &mut Single, key: Option<&LockKey>) {
        let those = match key {
            Some(key) => env.watch.changed(key).into_iter().collect(),
            None => env.watch.all_changed(),
        };
        for id in those {
            self.step(env, id, |contender, env| {
                if let Some((who, tenure)) = contender.tenure() {
                    tenure.changed(env, who);
                }
                Next::Stay
            });
        }
    }

    fn taken_away(
        &mut self,
        env: &mut Single,
        id: HalfId,
        (token, reason): (FencingToken, LossReason),
    ) {
        self.step(env, id, |contender, env| {
            match &mut contender.phase {
                Phase::Acquiring(acquiring) => acquiring.taken_away(token, reason),
                Phase::Held(tenure) if tenure.token == token => {
                    tenure.kept.doubt_push(env.cx.now);
                    return Next::Lose(reason);
                }
                Phase::Held(_) => {}
            }
            Next::Stay
        });
    }
}

/// Events of a server, which concern every contender of its locks.
impl Locks<Single> {
    /// Takes in a new connection. Everything that waits for a retry is retried now. Every lease is renewed,
    /// because the server may have lost its data.
    pub(super) fn retry_all(&mut self, env: &mut Single, server: ServerId) {
        for id in self.contenders_of(&env.servers, server, &|contender| !contender.is_acquiring()) {
            self.step(env, id, |contender, env| {
                if let Some((_, tenure)) = contender.tenure() {
                    tenure.kept.attempt.pace.next = env.cx.now;
                }
                env.time(&mut contender.lease, &mut contender.phase)
            });
        }
        // Releases go first, because acquisitions may want the locks that they free.
        for id in self.releases.of(|key| env.servers.of(key) == server) {
            self.releases.retry(env, &mut self.handles, id);
        }
        self.ask_again(env, server);
    }

    /// Warns holders at once that the connection is lost. Otherwise they would learn of it at their next
    /// renewal.
    pub(super) fn warn_holders(&mut self, env: &mut Single, (server, error): (ServerId, &Error)) {
        let unwarned = |contender: &Contender<Single>| match &contender.phase {
            Phase::Held(tenure) => {
                tenure.is_renewed(&contender.lease.spec) && tenure.kept.attempt.pace.failures == 0
            }
            Phase::Acquiring(_) => false,
        };
        for id in self.contenders_of(&env.servers, server, &unwarned) {
            self.step(env, id, |contender, env| {
                if let Some((who, tenure)) = contender.tenure() {
                    tenure.failed(env, who, None, error.clone());
                }
                Next::Stay
            });
        }
    }

    /// Takes in that pushes can be heard, for the first time or after some may have been missed. Waiters ask
    /// again, and holders check their locks.
    pub(super) fn subscribed(&mut self, env: &mut Single, server: ServerId) {
        self.ask_again(env, server);
        let now = env.cx.now;
        self.check(env, server, &|tenure| tenure.began < now);
    }

    /// Takes in that no pushes can be heard. Waiters ask soon. They do not ask at once, because subscriptions
    /// may fail often.
    pub(super) fn unsubscribed(&mut self, env: &mut Single, server: ServerId) {
        let soon = env.cx.now + line::FASTEST_HEARTBEAT;
        for id in self.contenders_of(&env.servers, server, &Contender::is_acquiring) {
            self.step(env, id, |contender, _| {
                if let Phase::Acquiring(acquiring) = &mut contender.phase {
                    acquiring.ask_by(soon);
                }
                Next::Stay
            });
        }
    }

    /// Repairs promises that rest on too small a drift margin. Each holder asks the store for its lock again,
    /// with the extra time that the new margin requires.
    pub(super) fn keep_promises(&mut self, env: &mut Single, server: ServerId) {
        self.check(env, server, &|_| true);
    }

    /// Checks whether the store still has these tenures.
    fn check(
        &mut self,
        env: &mut Single,
        server: ServerId,
        which: &dyn Fn(&Tenure<Renewing>) -> bool,
    ) {
        let which = |contender: &Contender<Single>| match &contender.phase {
            Phase::Held(tenure) => which(tenure),
            Phase::Acquiring(_) => false,
        };
        for id in self.contenders_of(&env.servers, server, &which) {
            self.step(env, id, |contender, env| {
                if let Some((who, tenure)) = contender.tenure() {
                    tenure.check(env, who);
                }
                Next::Stay
            });
        }
    }

    /// Makes everyone who acquires a lock of this server ask now.
    fn ask_again(&mut self, env: &mut Single, server: ServerId) {
        for id in self.contenders_of(&env.servers, server, &Contender::is_acquiring) {
            self.step(env, id, Contender::ask_again);
        }
    }

    fn contenders_of(
        &self,
        servers: &Servers,
        server: ServerId,
        are: &dyn Fn(&Contender<Single>) -> bool,
    ) -> Vec<HalfId> {
        self.those(&|contender| are(contender) && servers.of(&contender.lease.spec.key) == server)
    }
}
