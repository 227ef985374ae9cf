//! A held lock at one store: its renewals and its loss.

use std::time::Duration;

use super::attempt::{Attempt, Doubt, Due, Failure, Outcome};
use super::manual::Manual;
use super::watched::Watched;
use super::{Single, watch};
use crate::engine::ctx::{Serial, Whose};
use crate::engine::front::{Keeping, Next, Renewal, Tenure, Who, lead, overheld};
use crate::engine::io::{Answer, CallId};
use crate::engine::pace::{Pace, jitter_at};
use crate::engine::servers::Flight;
use crate::engine::spec::LockSpec;
use crate::error::{Error, ErrorKind};
use crate::event::LossReason;
use crate::protocol::{Command, Durability, Extend, LeaseId, Renew, Reply, YieldRequest};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

/// How much longer a tenure's last renewal asks for, because the store counts whole milliseconds.
pub(super) const ROUNDED_OFF: Duration = Duration::from_millis(2);

/// The state of a tenure's renewals.
#[derive(Debug)]
pub(in crate::engine) struct Renewing {
    /// The attempts at the current renewal.
    pub(super) attempt: Attempt,
    /// True after a grant by push, until a renewal confirms it. Until then the store promises only the time
    /// to take the lock up.
    pub(super) unconfirmed: bool,
    /// True if the renewal in flight only checks that the store still has the lock, and true if another check
    /// follows it.
    checks: bool,
    checks_again: bool,
    pub(super) watched: Watched,
    pub(super) manual: Manual,
}

impl Tenure<Renewing> {
    /// Creates a tenure without leases. It began at the first of these local times or later, and its deadline
    /// is the second.
    pub(super) fn begin(who: &Who, token: FencingToken, times: (Timestamp, Timestamp)) -> Self {
        let next = next_renewal(who.spec.ttl, who.lease, times.0);
        let kept = Renewing {
            attempt: Attempt::due_at(next),
            unconfirmed: false,
            checks: false,
            checks_again: false,
            watched: Watched::new(),
            manual: Manual::default(),
        };
        let mut tenure = Self::new(token, times, kept);
        tenure.deadline = tenure.deadline.min(tenure.ends(&who.spec));
        tenure
    }

    /// True if no renewal can move the deadline: it has reached the end of the tenure.
    pub(super) fn is_overheld(&self, spec: &LockSpec) -> bool {
        self.deadline >= self.ends(spec)
    }

    /// Returns when `Lost` is emitted: before the deadline, by enough that a host which wakes a little late
    /// is still in time.
    pub(super) fn loss_at(&self, spec: &LockSpec) -> Timestamp {
        self.deadline - lead(self.kept.manual.ttl(spec))
    }

    pub(super) fn is_over(&self, spec: &LockSpec, now: Timestamp) -> bool {
        now >= self.loss_at(spec)
    }

    pub(super) fn wake_at(&self, spec: &LockSpec) -> Timestamp {
        let renews = self.kept.attempt.is_under_way() || self.is_renewed(spec);
        let renewal = renews.then(|| self.kept.attempt.wake_at());
        renewal.unwrap_or(Timestamp::NEVER).min(self.loss_at(spec))
    }

    pub(super) fn is_renewed(&self, spec: &LockSpec) -> bool {
        let goes_on = !spec.fixed && !self.is_overheld(spec);
        goes_on || self.kept.unconfirmed || self.kept.manual.is_asked()
    }

    /// Takes in the reply to an attempt that was in doubt.
    pub(super) fn resolve_doubt(&mut self, now: Timestamp, attempt: Serial, reply: &Reply) {
        let manual = &mut self.kept.manual;
        if manual
            .doubt()
            .is_some_and(|doubt| doubt.attempt == Some(attempt))
        {
            let same = matches!(reply, Reply::Held(grant) if grant.token == self.token);
            manual.set_doubt((!same).then_some(Doubt::until(now)));
        }
    }

    /// Returns what a lost tenure may leave in the store, and for how long. `None` if the store keeps
    /// nothing.
    pub(super) fn remains(
        &self,
        who: &Who,
        reason: LossReason,
    ) -> Option<(Option<Doubt>, Duration)> {
        // The store may keep it for a while, and waiters should not have to wait that long.
        let kept = matches!(
            reason,
            LossReason::Expired | LossReason::Shutdown | LossReason::Overheld
        );
        let doubt = self.kept.manual.doubt();
        // A waiter that a push granted the lock may have asked to join the line again meanwhile.
        let remains = doubt.is_some() || kept || self.kept.unconfirmed;
        remains.then(|| (doubt, self.kept.manual.longest_ttl(&who.spec)))
    }
}

impl Keeping for Renewing {
    fn cancel_renewal(&mut self, call: CallId) {
        self.manual.cancel(call);
    }

    fn take_renewals(&mut self) -> Vec<CallId> {
        self.manual.take_all()
    }
}

impl Renewing {
    /// Makes sure that the lock is released after a loss that a push reported. A push proves nothing: if the
    /// store still has the lock, it need not keep it until its expiry.
    pub(super) fn doubt_push(&mut self, now: Timestamp) {
        let doubt = self.manual.doubt().unwrap_or(Doubt::until(now));
        self.manual.set_doubt(Some(doubt));
    }
}

/// Changes of the lock's key by others.
impl Tenure<Renewing> {
    /// Starts to watch the key, if that is worth it.
    pub(super) fn watch(&mut self, env: &mut Single, who: &Who) {
        let ttl = self.kept.manual.ttl(&who.spec);
        self.kept.watched.begin(env, who, (ttl, true));
    }

    /// Watches the key again after a renewal. A lock that has been held for a while is likely to stay held,
    /// so its key is read at once. After a check it is read a little later, because more changes may come.
    fn watch_on(&mut self, env: &mut Single, who: &Who, checked: bool) {
        let soon = checked || env.cx.now.since(self.began) < watch::SOON;
        if self
            .kept
            .watched
            .begin(env, who, (self.kept.manual.ttl(&who.spec), soon))
        {
            self.read(env, who);
        }
    }

    pub(super) fn read(&mut self, env: &mut Single, who: &Who) {
        let is_written = self.kept.attempt.is_under_way();
        self.kept.watched.read(env, who, is_written);
    }

    /// Takes in that another client may have changed the key.
    pub(super) fn changed(&mut self, env: &mut Single, who: &Who) {
        self.kept.watched.changed();
        self.check_again(env, who);
    }
}

/// Renewals.
impl Tenure<Renewing> {
    /// Handles the tenure's timer.
    pub(super) fn time(&mut self, env: &mut Single, who: &Who) -> Next<Single> {
        let spec = &who.spec;
        if self.is_over(spec, env.cx.now) {
            return Next::Lose(self.why_over(spec));
        }
        match self.kept.attempt.due(env.cx.now) {
            Due::Late(flight) => {
                if let Some(error) = self.kept.attempt.late(&mut env.servers, env.cx.now, None) {
                    self.failed(env, who, Some(flight), error);
                }
            }
            Due::Now if self.is_renewed(spec) => self.renew(env, who),
            Due::Now | Due::Later => {}
        }
        Next::Stay
    }

    /// Returns why the tenure ends at its deadline.
    fn why_over(&self, spec: &LockSpec) -> LossReason {
        if self.is_overheld(spec) {
            LossReason::Overheld
        } else {
            LossReason::Expired
        }
    }

    pub(super) fn renew_by_hand(&mut self, env: &mut Single, who: &Who, renewal: Renewal) {
        if self.is_overheld(&who.spec) && !self.kept.unconfirmed && renewal.floor.is_none() {
            let refused = Answer::Renew(Err(overheld(&who.spec)));
            return env.cx.answer(renewal.call, refused);
        }
        let is_under_way = self.kept.attempt.is_under_way();
        let checks = who.spec.fixed && self.kept.checks;
        self.kept.manual.request(renewal, is_under_way, checks);
        if !is_under_way {
            self.renew(env, who);
        }
    }

    /// Starts the renewal that waited for the one before it, which asked for less.
    fn renew_later(&mut self, env: &mut Single, who: &Who) {
        if !self.kept.manual.begin_later() {
            return;
        }
        if self.is_overheld(&who.spec) && !self.kept.manual.has_floor() {
            for call in self.kept.manual.take_under_way() {
                let refused = Answer::Renew(Err(overheld(&who.spec)));
                env.cx.answer(call, refused);
            }
        } else {
            self.renew(env, who);
        }
    }

    /// Renews the lock to check that the store still has it. If so, this emits nothing and changes neither
    /// the deadline nor the time of the next renewal.
    pub(super) fn check(&mut self, env: &mut Single, who: &Who) {
        if who.spec.fixed {
            return;
        }
        self.check_for(env, who, self.kept.manual.wanted_ttl(&who.spec));
    }

    /// Checks the lock as [`check`](Self::check) does, and also checks fixed leases, for which it asks for no
    /// extra time.
    pub(super) fn check_again(&mut self, env: &mut Single, who: &Who) {
        let wanted = if who.spec.fixed {
            Duration::ZERO
        } else {
            self.kept.manual.wanted_ttl(&who.spec)
        };
        self.check_for(env, who, wanted);
    }

    fn check_for(&mut self, env: &mut Single, who: &Who, ttl: Duration) {
        if self.kept.attempt.is_under_way() {
            self.kept.checks_again = true;
        } else {
            self.renew_for(env, who, ttl);
            self.kept.checks = true;
        }
    }

    pub(super) fn renew(&mut self, env: &mut Single, who: &Who) {
        // This renewal asks for all that the calls for a later one want, also if it repeats a late one.
        self.kept.manual.begin_later();
        self.renew_for(env, who, self.kept.manual.wanted_ttl(&who.spec));
    }

    fn renew_for(&mut self, env: &mut Single, who: &Who, ttl: Duration) {
        let spec = &who.spec;
        let margin = env.servers.margin(env.servers.of(&spec.key));
        // What is left of the longest time, with what the drift margin takes off it.
        let left = self.ends(spec).since(env.cx.now);
        let ttl = if ttl < left {
            ttl
        } else {
            margin.outlasting(left) + ROUNDED_OFF
        };
        // A shorter time to live or a wider margin must not cut short what the holder was promised: the store
        // may act on the shorter time while the holder still counts on the rest.
        let asked = margin.covering(self.deadline.since(env.cx.now), ttl);
        self.kept.manual.asks(spec, (asked, ttl));
        let renew = Renew {
            key: spec.key.clone(),
            lease: who.lease,
            token: self.token,
            counter: spec.counter,
            ttl: asked,
            floor: self.kept.manual.carry_floor(),
        };
        let command = match spec.owner.share() {
            Some(_) => Command::Extend(Extend {
                reads: renew.floor.is_some(),
                renew,
            }),
            None => Command::Renew(renew),
        };
        (self.kept.checks, self.kept.checks_again) = (false, false);
        let third = self.kept.manual.ttl(spec) / 3;
        let durability = spec.durability(self.kept.manual.ttl(spec));
        let patience = env.cx.settings.command_timeout.min(third) + Durability::time(durability);
        let give_up = env.cx.now + patience;
        let give_up = give_up.min(self.loss_at(spec));
        let whose = Whose::Contender(who.id());
        let asked = (command, durability);
        self.kept.attempt.begin_durably(env, whose, asked, give_up);
    }

    /// Takes in the outcome of a renewal.
    pub(super) fn landed(&mut self, env: &mut Single, who: &Who, outcome: Outcome) -> Next<Single> {
        let Some(flight) = self.kept.attempt.land(&outcome) else {
            return Next::Stay;
        };
        let answered = Flight {
            server: outcome.server,
            ..flight
        };
        let error = match outcome.result {
            Ok((Reply::Renewed { expires }, time)) => {
                self.renewed(env, who, answered, (expires, time));
                return Next::Stay;
            }
            Ok((Reply::Wanted { expires, request }, time)) => {
                self.renewed(env, who, answered, (expires, time));
                self.wanted(env, who, (request, time));
                return Next::Stay;
            }
            Ok((Reply::Gone, _)) => return Next::Lose(LossReason::Deleted),
            Ok((Reply::Taken, _)) => return Next::Lose(LossReason::Superseded),
            // Another client put another type of value in the lock's place.
            Err(error) if error.kind() == ErrorKind::WrongType => {
                return Next::Lose(LossReason::Superseded);
            }
            // This reply corrects the anchor of the server's clock, so asking again at once may succeed. With
            // a wide margin, `not_after` is early if the last reply is long ago.
            Ok((Reply::Late, _)) if self.kept.attempt.pace.failures == 0 => {
                self.kept.attempt.pace.failures = 1;
                if self.kept.checks && !self.kept.manual.is_asked() {
                    self.check_again(env, who);
                } else {
                    self.renew(env, who);
                }
                return Next::Stay;
            }
            Ok((Reply::Late, _)) => Failure::late().into_error(),
            // The server renewed the lock, except that a failover may undo it.
            Ok((Reply::NotDurable(error), _)) | Err(error) => error,
            Ok(_) => Failure::mismatch().into_error(),
        };
        self.failed(env, who, Some(flight), error);
        Next::Stay
    }

    fn renewed(
        &mut self,
        env: &mut Single,
        who: &Who,
        flight: Flight,
        expiry: (ServerTime, ServerTime),
    ) {
        self.kept.manual.confirm_floor();
        self.kept.attempt.pace.failures = 0;
        // The key's slot may have moved to a server that this locker has not subscribed to.
        env.servers.want_pushes(&mut env.cx, flight.server);
        let (checked, checks_again) = (self.kept.checks, self.kept.checks_again);
        if !checked || self.kept.unconfirmed || self.kept.manual.is_asked() {
            self.extended(env, who, flight, expiry);
        }
        if checks_again {
            self.check_again(env, who);
        }
        self.watch_on(env, who, checked);
    }

    /// Emits a request to yield, unless an earlier renewal reported it.
    fn wanted(&mut self, env: &mut Single, who: &Who, (request, time): (YieldRequest, ServerTime)) {
        if self.kept.manual.is_first(request.until) {
            let within = request.until.since(time);
            self.emit_wanted(&mut env.cx, who, (request.by.into(), within));
        }
    }

    fn extended(
        &mut self,
        env: &mut Single,
        who: &Who,
        flight: Flight,
        (expires, time): (ServerTime, ServerTime),
    ) {
        let spec = &who.spec;
        let expiry = (expires, self.kept.manual.counted(spec));
        let deadline = env
            .servers
            .deadline(flight.server, flight.sent, time, expiry);
        let was_overheld = self.is_overheld(spec) && !self.kept.unconfirmed;
        self.deadline = deadline.min(self.ends(spec)).max(self.deadline);
        self.kept.unconfirmed = false;
        self.kept.watched.renewed();
        let ttl = self.kept.manual.wanted_ttl(spec);
        self.kept.manual.confirm_ttl();
        // While more is left than the time to live, a renewal would gain nothing.
        let since = flight.sent.max(self.deadline - ttl);
        self.kept.attempt.pace = Pace::due_at(next_renewal(ttl, who.lease, since));
        self.emit_renewed(&mut env.cx, who);
        for call in self.kept.manual.take_under_way() {
            env.cx.answer(call, Answer::Renew(Ok(())));
        }
        if self.is_overheld(spec) && !was_overheld {
            self.emit_at_risk(&mut env.cx, who, (overheld(spec), None));
        }
        self.renew_later(env, who);
    }

    /// Takes in that a renewal failed, or will fail because the connection is down.
    pub(super) fn failed(
        &mut self,
        env: &mut Single,
        who: &Who,
        flight: Option<Flight>,
        error: Error,
    ) {
        let ttl = self.kept.manual.ttl(&who.spec);
        let base = (ttl / 30).clamp(Duration::from_millis(1), Duration::from_millis(100));
        let most = (ttl / 6).clamp(base, Duration::from_secs(1));
        self.kept
            .attempt
            .pace
            .back_off(env.cx.now, (base, most), who.lease);
        let flight = self.kept.attempt.forget_flight().or(flight);
        if let Some(flight) = flight {
            env.servers.unsend(flight);
        }
        for call in self.kept.manual.take_under_way() {
            env.cx.answer(call, Answer::Renew(Err(error.clone())));
        }
        self.emit_at_risk(&mut env.cx, who, (error, None));
        self.renew_later(env, who);
    }
}

/// Returns the time of the next renewal: after a third of the time to live, with jitter so that lockers
/// spread out. The time is rounded down to a grid, so that one locker's leases are renewed together. By then,
/// less is left than the time to live reduced by the widest drift margin.
fn next_renewal(ttl: Duration, lease: LeaseId, since: Timestamp) -> Timestamp {
    let next = since + jitter_at(ttl / 3, lease, since);
    let grid = u64::try_from(ttl.as_nanos() / 64).unwrap_or(u64::MAX);
    Timestamp::from_nanos(next.as_nanos() - next.as_nanos() % grid.max(1))
}
