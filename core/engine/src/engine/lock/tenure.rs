//! A held lock: its renewals, and its loss.

use std::time::Duration;

use super::watched::Watched;
use super::who::Who;
use crate::engine::attempt::{Attempt, Doubt, Due, Failure, Outcome};
use crate::engine::clock::Margin;
use crate::engine::ctx::{Ctx, Serial, Whose};
use crate::engine::env::Env;
use crate::engine::io::{Acquired, Answer, CallId, LockSpec};
use crate::engine::pace::{Pace, jitter_at};
use crate::engine::servers::Flight;
use crate::engine::watch;
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{Command, Durability, LeaseId, Renew, Reply};
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

/// How long before its deadline a loss is emitted. Timers count whole milliseconds and round up: they
/// are one or two late on a machine that does nothing else. Of the shortest lease this leaves 7 ms,
/// of which a renewal begins in the fourth or fifth.
const LEAST_LEAD: Duration = Duration::from_millis(3);
const MOST_LEAD: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Tenure {
    pub(super) token: FencingToken,
    pub(super) deadline: Timestamp,
    pub(super) began: Timestamp,
    /// How many leases of the program share it.
    pub(super) leases: u32,
    /// Of its renewals.
    pub(super) attempt: Attempt,
    /// It was handed over, and the store knows only that it has some time to take the lock up.
    pub(super) unconfirmed: bool,
    /// What is under way only looks whether the store still has it, and whether that is to be asked
    /// once more.
    looks: bool,
    looks_again: bool,
    pub(super) watched: Watched,
    rare: Option<Box<Rare>>,
}

/// What few tenures have.
#[derive(Debug, Default)]
struct Rare {
    /// An earlier attempt of the acquisition may have taken the lock again by then, after it was
    /// freed: whoever ends the tenure sees to it.
    doubt: Option<Doubt>,
    /// Calls that wait for a renewal.
    renewals: Vec<CallId>,
    /// Calls that wait for the one after it, because it does not ask for what they do.
    later: Vec<CallId>,
    /// The time to live that the program asked for by hand, and the one that it has got.
    wanted: Option<Duration>,
    ttl: Option<Duration>,
    /// The time that the holder may count on once the last renewal succeeds: the time that the renewal is for, even
    /// if the store was asked for more. And the longest time that the store was ever asked for.
    counted: Option<Duration>,
    longest: Duration,
    /// The highest floor that no renewal has confirmed yet, and the one that the last had.
    floor: Option<FencingToken>,
    carried: Option<FencingToken>,
}

impl Tenure {
    /// One that began at a local moment no earlier than `began`, and that nobody shares yet.
    pub(super) fn new(
        who: &Who,
        token: FencingToken,
        began: Timestamp,
        deadline: Timestamp,
    ) -> Self {
        Self {
            token,
            deadline,
            began,
            leases: 0,
            attempt: Attempt::due_at(next_renewal(who.spec.ttl, who.lease, began)),
            unconfirmed: false,
            looks: false,
            looks_again: false,
            watched: Watched::new(),
            rare: None,
        }
    }

    pub(super) fn doubt(&self) -> Option<Doubt> {
        self.rare.as_ref()?.doubt
    }

    pub(super) fn set_doubt(&mut self, doubt: Option<Doubt>) {
        if doubt.is_some() || self.rare.is_some() {
            self.rare.get_or_insert_default().doubt = doubt;
        }
    }

    /// The call does not wait for a renewal any more.
    pub(super) fn cancel_renewal(&mut self, call: CallId) {
        if let Some(rare) = &mut self.rare {
            rare.renewals.retain(|renewal| *renewal != call);
            rare.later.retain(|renewal| *renewal != call);
        }
    }

    /// The tenure is over: so for all who wait for a renewal.
    pub(super) fn refuse_renewals(&mut self, cx: &mut Ctx, why: impl Fn() -> Error) {
        let mut calls = self.take_renewals_under_way();
        if let Some(rare) = &mut self.rare {
            calls.append(&mut rare.later);
        }
        for call in calls {
            cx.answer(call, Answer::Renew(Err(why())));
        }
    }

    fn take_renewals_under_way(&mut self) -> Vec<CallId> {
        let rare = self.rare.as_mut();
        rare.map(|rare| std::mem::take(&mut rare.renewals))
            .unwrap_or_default()
    }

    /// The time to live that the store gave it last.
    fn ttl(&self, spec: &LockSpec) -> Duration {
        let changed = self.rare.as_ref().and_then(|rare| rare.ttl);
        changed.unwrap_or(spec.ttl)
    }

    /// The time to live that renewals ask for.
    fn wanted_ttl(&self, spec: &LockSpec) -> Duration {
        let changed = self.rare.as_ref().and_then(|rare| rare.wanted);
        changed.unwrap_or(spec.ttl)
    }

    /// The longest time to live that the store may have given it.
    pub(super) fn longest_ttl(&self, spec: &LockSpec) -> Duration {
        let changed = self.rare.as_ref().map(|rare| rare.longest);
        changed.unwrap_or_default().max(spec.ttl)
    }

    /// What the store is asked for now. A shorter time to live than before, or a wider margin, must
    /// not cut short what the holder was promised: the store may act on it while the holder still
    /// counts on the rest.
    fn ask(
        &mut self,
        spec: &LockSpec,
        now: Timestamp,
        (margin, wanted): (Margin, Duration),
    ) -> Duration {
        let asked = margin.covering(self.deadline.since(now), wanted);
        if asked != spec.ttl || self.rare.is_some() {
            let rare = self.rare.get_or_insert_default();
            rare.counted = Some(wanted);
            rare.longest = rare.longest.max(asked);
        }
        asked
    }

    /// The floor that a renewal has which leaves now.
    fn carry_floor(&mut self) -> Option<FencingToken> {
        let rare = self.rare.as_mut()?;
        rare.carried = rare.floor;
        rare.floor
    }

    /// What the last renewal had is done.
    fn confirm_floor(&mut self) {
        if let Some(rare) = &mut self.rare
            && rare.floor == rare.carried
        {
            rare.floor = None;
        }
    }

    /// The most that the holder may count on once the last renewal succeeds, from when it was sent.
    fn counted(&self, spec: &LockSpec) -> Duration {
        let changed = self.rare.as_ref().and_then(|rare| rare.counted);
        changed.unwrap_or(spec.ttl)
    }

    /// When `Lost` is emitted: so long before the deadline that a host which wakes a little late
    /// is still in time.
    pub(super) fn loss_at(&self, spec: &LockSpec) -> Timestamp {
        self.deadline - lead(self.ttl(spec))
    }

    pub(super) fn is_over(&self, spec: &LockSpec, now: Timestamp) -> bool {
        now >= self.loss_at(spec)
    }

    pub(super) fn wake_at(&self, spec: &LockSpec) -> Timestamp {
        let renews = self.attempt.is_under_way() || self.is_renewed(spec);
        let renewal = renews.then(|| self.attempt.wake_at());
        renewal.unwrap_or(Timestamp::NEVER).min(self.loss_at(spec))
    }

    pub(super) fn is_renewed(&self, spec: &LockSpec) -> bool {
        !spec.fixed || self.unconfirmed || self.is_asked()
    }

    /// Whether calls wait for a renewal.
    fn is_asked(&self) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| !rare.renewals.is_empty() || !rare.later.is_empty())
    }
}

/// What it gives to its holder.
impl Tenure {
    /// A lease of it, for a call through that handle.
    pub(super) fn lease(&self, who: &Who) -> Acquired {
        Acquired {
            lock: who.lock,
            lease: who.lease,
            token: self.token,
            deadline: self.deadline,
            began: self.began,
            waited: Duration::ZERO,
        }
    }

    /// The event of its beginning, as of now.
    pub(super) fn acquired(&self, spec: &LockSpec, now: Timestamp) -> LeaseEvent {
        LeaseEvent::Acquired {
            name: spec.name.clone(),
            token: self.token,
            remaining: self.deadline.since(now),
        }
    }

    /// One lease more.
    pub(super) fn join(&mut self, cx: &mut Ctx, who: &Who, call: CallId) {
        let answer = if self.leases == u32::MAX {
            Err(too_many_leases())
        } else {
            self.leases += 1;
            Ok(Some(self.lease(who)))
        };
        cx.answer(call, Answer::Acquire(answer));
    }

    /// A push proves nothing: if the store still has the lock, it need not keep it to its expiry, so
    /// it is given back at the loss.
    pub(super) fn doubt_push(&mut self, now: Timestamp) {
        self.set_doubt(Some(self.doubt().unwrap_or(Doubt::until(now))));
    }

    /// The answer to an attempt has come that was in doubt.
    pub(super) fn resolve_doubt(&mut self, now: Timestamp, attempt: Serial, reply: &Reply) {
        let doubt = self.doubt().filter(|doubt| doubt.attempt == Some(attempt));
        if doubt.is_some() {
            let same = matches!(reply, Reply::Held(grant) if grant.token == self.token);
            self.set_doubt((!same).then_some(Doubt::until(now)));
        }
    }

    /// What the store is to take back after it was lost, and for how long it may keep that.
    pub(super) fn remains(
        &self,
        who: &Who,
        reason: LossReason,
    ) -> Option<(Option<Doubt>, Duration)> {
        // The store may still have it for a while; others need not wait that long.
        let kept = matches!(reason, LossReason::Expired | LossReason::Shutdown);
        // Who was granted it by a push may have asked for a place in line once more meanwhile.
        let remains = self.doubt().is_some() || kept || self.unconfirmed;
        remains.then(|| (self.doubt(), self.longest_ttl(&who.spec)))
    }
}

/// What others may do to its key.
impl Tenure {
    /// From now on it is heard at once, if it is worth it.
    pub(super) fn watch(&mut self, env: &mut Env, who: &Who) {
        let ttl = self.ttl(&who.spec);
        self.watched.begin(env, who, (ttl, true));
    }

    /// The same after a renewal: what has been held for a while is likely to be held on. But after a look more
    /// changes may come.
    fn watch_on(&mut self, env: &mut Env, who: &Who, looked: bool) {
        let soon = looked || env.cx.now.since(self.began) < watch::SOON;
        if self.watched.begin(env, who, (self.ttl(&who.spec), soon)) {
            self.read(env, who);
        }
    }

    pub(super) fn read(&mut self, env: &mut Env, who: &Who) {
        let is_written = self.attempt.is_under_way();
        self.watched.read(env, who, is_written);
    }

    /// Somebody else may have changed its key.
    pub(super) fn changed(&mut self, env: &mut Env, who: &Who) {
        self.watched.changed();
        self.look_again(env, who);
    }
}

/// Renewals.
impl Tenure {
    /// Time passed. Returns why the tenure is over, if it is.
    pub(super) fn time(&mut self, env: &mut Env, who: &Who) -> Option<LossReason> {
        let spec = &who.spec;
        if self.is_over(spec, env.cx.now) {
            return Some(LossReason::Expired);
        }
        match self.attempt.due(env.cx.now) {
            Due::Late(flight) => {
                if let Some(error) = self.attempt.late(&mut env.servers, env.cx.now, None) {
                    self.failed(env, who, Some(flight), error);
                }
            }
            Due::Now if self.is_renewed(spec) => self.renew(env, who),
            Due::Now | Due::Later => {}
        }
        None
    }

    pub(super) fn renew_by_hand(
        &mut self,
        env: &mut Env,
        who: &Who,
        (call, ttl, floor): (CallId, Option<Duration>, Option<FencingToken>),
    ) {
        let under_way = self.attempt.is_under_way();
        let rare = self.rare.get_or_insert_default();
        rare.wanted = ttl.or(rare.wanted);
        rare.floor = floor.max(rare.floor);
        // What is under way asks for another time to live, or only for the one that is left, or has
        // not got the floor.
        let asks_less = ttl.is_some() || who.spec.fixed && self.looks || floor > rare.carried;
        if under_way && asks_less {
            rare.later.push(call);
        } else {
            rare.renewals.push(call);
        }
        if !under_way {
            self.renew(env, who);
        }
    }

    /// Renews it to learn whether the store still has it. Nothing is emitted if so, and neither its
    /// deadline nor its next renewal changes.
    pub(super) fn look(&mut self, env: &mut Env, who: &Who) {
        if who.spec.fixed {
            return;
        }
        self.look_for(env, who, self.wanted_ttl(&who.spec));
    }

    /// As [`look`](Self::look), also if it is fixed: it asks for no more time than it has.
    fn look_again(&mut self, env: &mut Env, who: &Who) {
        let wanted = if who.spec.fixed {
            Duration::ZERO
        } else {
            self.wanted_ttl(&who.spec)
        };
        self.look_for(env, who, wanted);
    }

    fn look_for(&mut self, env: &mut Env, who: &Who, ttl: Duration) {
        if self.attempt.is_under_way() {
            self.looks_again = true;
        } else {
            self.renew_for(env, who, ttl);
            self.looks = true;
        }
    }

    pub(super) fn renew(&mut self, env: &mut Env, who: &Who) {
        self.renew_for(env, who, self.wanted_ttl(&who.spec));
    }

    fn renew_for(&mut self, env: &mut Env, who: &Who, ttl: Duration) {
        let spec = &who.spec;
        let margin = env.servers.margin(env.servers.of(&spec.key));
        let command = Command::Renew(Renew {
            key: spec.key.clone(),
            lease: who.lease,
            token: self.token,
            counter: spec.counter,
            ttl: self.ask(spec, env.cx.now, (margin, ttl)),
            floor: self.carry_floor(),
        });
        (self.looks, self.looks_again) = (false, false);
        let third = self.ttl(spec) / 3;
        let durability = spec.durability(self.ttl(spec));
        let patience = env.cx.settings.command_timeout.min(third) + Durability::time(durability);
        let give_up = env.cx.now + patience;
        let give_up = give_up.min(self.loss_at(spec));
        let whose = Whose::Contender(who.id());
        let asked = (command, durability);
        self.attempt.begin_durably(env, whose, asked, give_up);
    }

    /// A renewal has an outcome. Returns why the tenure is over, if it is.
    pub(super) fn landed(
        &mut self,
        env: &mut Env,
        who: &Who,
        outcome: Outcome,
    ) -> Option<LossReason> {
        let flight = self.attempt.land(&outcome)?;
        let error = match outcome.result {
            Ok((Reply::Renewed { expires }, time)) => {
                let flight = Flight {
                    server: outcome.server,
                    ..flight
                };
                self.renewed(env, who, flight, (expires, time));
                return None;
            }
            Ok((Reply::Gone, _)) => return Some(LossReason::Deleted),
            Ok((Reply::Taken, _)) => return Some(LossReason::Superseded),
            // Somebody put something else in the lock's place.
            Err(error) if error.kind() == ErrorKind::WrongType => {
                return Some(LossReason::Superseded);
            }
            // By this reply the server's clock is known anew, so asking again at once may succeed: with a wide
            // margin `not_after` is early if the last reply is long ago.
            Ok((Reply::Late, _)) if self.attempt.pace.failures == 0 => {
                self.attempt.pace.failures = 1;
                if self.looks {
                    self.look_again(env, who);
                } else {
                    self.renew(env, who);
                }
                return None;
            }
            Ok((Reply::Late, _)) => Failure::late().into_error(),
            // Done, but a failover may lose what was done.
            Ok((Reply::NotDurable(error), _)) | Err(error) => error,
            Ok(_) => Failure::mismatch().into_error(),
        };
        self.failed(env, who, Some(flight), error);
        None
    }

    fn renewed(
        &mut self,
        env: &mut Env,
        who: &Who,
        flight: Flight,
        expiry: (ServerTime, ServerTime),
    ) {
        self.confirm_floor();
        self.attempt.pace.failures = 0;
        // Its slot may have moved to a server that this locker has not listened to.
        env.servers.want_pushes(&mut env.cx, flight.server);
        let (looked, looks_again) = (self.looks, self.looks_again);
        if !looked || self.unconfirmed || self.is_asked() {
            self.extended(env, who, flight, expiry);
        }
        if looks_again {
            self.look_again(env, who);
        }
        self.watch_on(env, who, looked);
    }

    fn extended(
        &mut self,
        env: &mut Env,
        who: &Who,
        flight: Flight,
        (expires, time): (ServerTime, ServerTime),
    ) {
        let spec = &who.spec;
        let expiry = (expires, self.counted(spec));
        let deadline = env
            .servers
            .deadline(flight.server, flight.sent, time, expiry);
        self.deadline = deadline.max(self.deadline);
        self.unconfirmed = false;
        self.watched.renewed();
        let ttl = self.wanted_ttl(spec);
        if let Some(rare) = &mut self.rare
            && rare.later.is_empty()
        {
            rare.ttl = rare.wanted;
        }
        // While more is left than the time to live, a renewal would gain nothing.
        let since = flight.sent.max(self.deadline - ttl);
        self.attempt.pace = Pace::due_at(next_renewal(ttl, who.lease, since));
        let event = LeaseEvent::Renewed {
            name: spec.name.clone(),
            token: self.token,
            remaining: self.deadline.since(env.cx.now),
        };
        who.emit(&mut env.cx, event, Some(self.deadline));
        for call in self.take_renewals_under_way() {
            env.cx.answer(call, Answer::Renew(Ok(())));
        }
        self.renew_later(env, who);
    }

    /// A renewal failed, or will, because there is no link.
    pub(super) fn failed(
        &mut self,
        env: &mut Env,
        who: &Who,
        flight: Option<Flight>,
        error: Error,
    ) {
        let ttl = self.ttl(&who.spec);
        let base = (ttl / 30).clamp(Duration::from_millis(1), Duration::from_millis(100));
        let most = (ttl / 6).clamp(base, Duration::from_secs(1));
        self.attempt
            .pace
            .back_off(env.cx.now, (base, most), who.lease);
        let flight = self.attempt.forget_flight().or(flight);
        if let Some(flight) = flight {
            env.servers.unsend(flight);
        }
        for call in self.take_renewals_under_way() {
            env.cx.answer(call, Answer::Renew(Err(error.clone())));
        }
        let event = LeaseEvent::AtRisk {
            name: who.spec.name.clone(),
            token: self.token,
            remaining: self.deadline.since(env.cx.now),
            error,
        };
        who.emit(&mut env.cx, event, None);
        self.renew_later(env, who);
    }

    /// Begins the renewal that waited for the one before, which asked for another time to live.
    fn renew_later(&mut self, env: &mut Env, who: &Who) {
        let rare = self.rare.as_mut();
        if let Some(rare) = rare.filter(|rare| !rare.later.is_empty()) {
            rare.renewals = std::mem::take(&mut rare.later);
            self.renew(env, who);
        }
    }
}

/// After a third of the time to live, with jitter, so that lockers come apart; on a grid, so that
/// one locker's leases leave together. By then less is left than the time to live less the widest
/// drift margin.
fn next_renewal(ttl: Duration, lease: LeaseId, since: Timestamp) -> Timestamp {
    let next = since + jitter_at(ttl / 3, lease, since);
    let grid = u64::try_from(ttl.as_nanos() / 64).unwrap_or(u64::MAX);
    Timestamp::from_nanos(next.as_nanos() - next.as_nanos() % grid.max(1))
}

/// Of one tenure: their count is at its end.
pub(in crate::engine) fn too_many_leases() -> Error {
    let message = "4,294,967,295 leases share this tenure already";
    Error::new(ErrorKind::Overloaded, message)
}

pub(in crate::engine) fn not_held() -> Error {
    Error::new(
        ErrorKind::NotHeld,
        "the lease is not held: it was lost or released before",
    )
}

pub(in crate::engine) fn lost(reason: LossReason) -> Error {
    Error::new(
        ErrorKind::NotHeld,
        format!("the lease is not held: {reason}"),
    )
}

/// How long before its deadline the loss of a lease with this time to live is emitted.
pub(in crate::engine) fn lead(ttl: Duration) -> Duration {
    (ttl / 10).clamp(LEAST_LEAD, MOST_LEAD)
}
