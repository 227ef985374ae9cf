//! An acquisition in progress: from the first request to a held lock, a refusal or an error.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::{Attempt, Doubt, Due, Failure, Outcome};
use super::renewing::ROUNDED_OFF;
use super::{Single, line};
use crate::engine::ctx::{Ctx, Whose};
use crate::engine::front::{self, Acquisition, Caller, Callers, Tenure, Who, used_up};
use crate::engine::io::{Answer, ServerId, Wait};
use crate::engine::pace::{Pace, retry};
use crate::engine::servers::Flight;
use crate::engine::spec::LockSpec;
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::protocol::{
    Accept, Acquire, Admission, Admit, Claim, Command, Durability, Grant, LeaseId, Reclaim, Reply,
};
use crate::share::Share;
use crate::ticket::Passed;
use crate::time::{ServerTime, Timestamp};
use crate::token::FencingToken;

#[derive(Debug)]
pub(crate) struct Acquiring {
    callers: Callers,
    pub(super) attempt: Attempt,
    /// The attempt in flight does not suffice: ask again after it.
    asks_again: bool,
    /// The position in line, as the store last reported it.
    place: Option<NonZeroU32>,
    /// The server that last reported another holder, and its clock at that time.
    refused: Option<(ServerId, ServerTime)>,
    /// The tenure that this acquisition may take over: the first one found, if its own owner holds it.
    reclaims: Reclaim,
    /// The tenure that it accepts, if its holder passed one on.
    accepts: Option<Box<Passed>>,
    /// A tenure that a push ended before the answer that granted it arrived.
    taken_away: Option<(FencingToken, LossReason)>,
    /// True if an attempt without an answer may have joined the line, or if an attempt got the lock without
    /// the copies that it needs.
    may_be_known: bool,
    /// The start of the store's silence, and the reason.
    silence: Option<(Timestamp, Error)>,
    admission: Option<Arc<Admission>>,
}

type Next = front::Next<Single>;

impl Acquisition for Acquiring {
    fn callers(&mut self) -> &mut Callers {
        &mut self.callers
    }

    fn wake_at(&self) -> Timestamp {
        self.attempt.wake_at().min(self.callers.soonest)
    }

    fn admission(&self) -> Option<Arc<Admission>> {
        self.admission.clone()
    }
}

/// Calls of the program.
impl Acquiring {
    pub(super) fn new(
        now: Timestamp,
        caller: Caller,
        (reclaims, accepts): (Reclaim, Option<Box<Passed>>),
    ) -> Self {
        Self {
            callers: Callers::of(caller),
            attempt: Attempt::due_at(now),
            asks_again: false,
            place: None,
            refused: None,
            reclaims,
            accepts,
            taken_away: None,
            may_be_known: false,
            silence: None,
            admission: None,
        }
    }

    /// Adds a call through a re-entrant handle.
    pub(super) fn join(&mut self, env: &mut Single, who: &Who, caller: Caller) {
        let waits = caller.wait != Wait::Never;
        let under_way = self.attempt.is_under_way();
        // The attempt in flight was for callers that do not wait, so it did not ask to join the line.
        self.asks_again |= waits && under_way && !self.callers.wait();
        self.callers.add(caller);
        if !waits && !under_way {
            self.ask(env, who);
        }
    }

    /// Fails all callers with this error.
    fn fail(&mut self, cx: &mut Ctx, error: &Error) -> Next {
        self.callers.fail(cx, error);
        Next::Leave
    }

    /// The token that the lock will have, if this acquisition proposed one.
    pub(super) fn proposed(&self) -> Option<FencingToken> {
        match self.reclaims {
            Reclaim::Propose(token) => Some(token),
            Reclaim::Ask | Reclaim::From(_) | Reclaim::Never => None,
        }
    }

    /// True if it accepts a tenure that was passed on.
    pub(super) fn accepts(&self) -> bool {
        self.accepts.is_some()
    }

    /// True if the store may have a place in line or a lock of this acquisition.
    pub(super) fn may_be_known(&self) -> bool {
        self.place.is_some() || self.may_be_known
    }
}

/// Requests.
impl Acquiring {
    pub(super) fn ask(&mut self, env: &mut Single, who: &Who) {
        self.asks_again = false;
        let spec = &who.spec;
        let claim = spec.claim(env.cx.settings.client, who.lease);
        let acquire = |claim| Acquire {
            key: spec.key.clone(),
            claim,
            waits: self.callers.wait(),
            reclaims: self.reclaims,
        };
        let command = match &self.accepts {
            Some(passed) => Command::Accept(accept(env, spec, claim, passed)),
            None if spec.owner.share().is_some() => Command::Admit(Admit(acquire(claim))),
            None => Command::Acquire(acquire(claim)),
        };
        let give_up = (env.cx.now + self.patience_of_one(&env.cx, spec)).min(self.callers.latest);
        let whose = Whose::Contender(who.id());
        let asked = (command, spec.durability(spec.ttl));
        self.attempt.begin_durably(env, whose, asked, give_up);
    }

    pub(super) fn ask_now(&mut self, env: &mut Single, who: &Who) -> Next {
        let under_way = self.attempt.under_way();
        // The server may have answered the attempt in flight before the event that led to this call.
        self.asks_again |= under_way.is_some_and(|flight| env.servers.has_left(flight));
        self.attempt.pace.next = env.cx.now;
        self.time(env, who)
    }

    /// Moves the next request to this time, unless it is due earlier.
    pub(super) fn ask_by(&mut self, at: Timestamp) {
        self.attempt.pace.next = self.attempt.pace.next.min(at);
    }

    pub(super) fn time(&mut self, env: &mut Single, who: &Who) -> Next {
        let next = self.dismiss(env);
        if let Next::Leave = next {
            return next;
        }
        match self.attempt.due(env.cx.now) {
            Due::Late(flight) => return self.late(env, who, flight),
            Due::Now => self.ask(env, who),
            Due::Later => {}
        }
        Next::Stay
    }

    /// Returns how long one attempt waits for its answer. The place in line must not expire meanwhile.
    fn patience_of_one(&self, cx: &Ctx, spec: &LockSpec) -> Duration {
        let heartbeat = self
            .place
            .map_or(Duration::MAX, |_| line::heartbeat(spec.ttl));
        let waits = Durability::time(spec.durability(spec.ttl));
        cx.settings.command_timeout.min(spec.ttl).min(heartbeat) + waits
    }

    fn late(&mut self, env: &mut Single, who: &Who, flight: Flight) -> Next {
        // Without a connection this counts as a failure, after which waiting callers keep trying.
        let waits = env.servers.is_up(flight.server) && self.callers.wait();
        let longer =
            (env.cx.now + self.patience_of_one(&env.cx, &who.spec)).min(self.callers.latest);
        let longer = longer.min(flight.sent + env.cx.settings.patience);
        match self
            .attempt
            .late(&mut env.servers, env.cx.now, waits.then_some(longer))
        {
            None => Next::Stay,
            Some(error) => self.failed(env, who, flight, &Failure::Unknown(error)),
        }
    }
}

/// Replies.
impl Acquiring {
    pub(super) fn landed(&mut self, env: &mut Single, who: &mut Who, outcome: Outcome) -> Next {
        let Some(flight) = self.attempt.land(&outcome) else {
            return Next::Stay;
        };
        let (reply, time) = match outcome.result {
            Ok(answer) => answer,
            Err(error) => {
                return self.failed(env, who, flight, &Failure::Unknown(error));
            }
        };
        // The reply's time is by the clock of the server that replied.
        let flight = Flight {
            server: outcome.server,
            ..flight
        };
        let reply = match reply {
            Reply::Admitted(grant, admission) => {
                let refused = refused_capacity(&who.spec, admission.capacity);
                self.admission = Some(Arc::new(admission));
                refused.map_or(Reply::Held(grant), Reply::NotDurable)
            }
            reply => reply,
        };
        match reply {
            Reply::Held(grant) => self.held(env, who, flight, (grant, time)),
            Reply::Excess { capacity } => {
                self.place = None;
                self.fail(&mut env.cx, &excess(&who.spec, capacity))
            }
            Reply::Busy { expires, place } => self.busy(env, who, flight, (expires, place, time)),
            Reply::Reclaimable { token } if self.reclaims == Reclaim::Ask => {
                // Its owner holds the lock through another client: ask at once to take over exactly that
                // tenure.
                self.reclaims = Reclaim::From(token);
                self.refused(flight, time);
                self.ask(env, who);
                Next::Stay
            }
            // The tenure, which may be the store's by now, is not what the caller asked for.
            Reply::NotDurable(error) => {
                self.may_be_known = true;
                self.fail(&mut env.cx, &error)
            }
            Reply::Completed => self.completed(env, flight, time),
            Reply::Gone | Reply::Taken if self.accepts.is_some() => {
                self.fail(&mut env.cx, &used_up())
            }
            Reply::Full { waiting } => self.line_full(env, flight, (waiting, time)),
            // The server's clock differed from its anchor. This reply corrects the anchor, so asking again at
            // once may succeed.
            Reply::Late if self.attempt.pace.failures == 0 => {
                self.attempt.pace.failures = 1;
                self.ask(env, who);
                Next::Stay
            }
            Reply::Late => self.failed(env, who, flight, &Failure::late()),
            _ => self.failed(env, who, flight, &Failure::mismatch()),
        }
    }

    /// Records that the server reported another holder, and its clock at that time.
    fn refused(&mut self, flight: Flight, time: ServerTime) {
        self.silence = None;
        self.refused = Some((flight.server, time));
        if self.reclaims == Reclaim::Ask {
            self.reclaims = Reclaim::Never;
        }
        // An attempt that could no longer take effect when this one was sent did not take the lock.
        self.attempt.settle_doubt(flight.sent);
    }

    fn held(
        &mut self,
        env: &mut Single,
        who: &mut Who,
        flight: Flight,
        (grant, time): (Grant, ServerTime),
    ) -> Next {
        let began = flight.sent;
        if let Some(ends) = self.accepts.as_ref().and_then(|passed| passed.ends) {
            let longest = (ends, LockSpec::MAX_TTL);
            let ends = env.servers.deadline(flight.server, began, time, longest);
            who.limit(ends.since(began));
        }
        let spec = &who.spec;
        let deadline = env
            .servers
            .deadline(flight.server, began, time, (grant.expires, spec.ttl));
        let mut tenure = Tenure::begin(who, grant.token, (began, deadline));
        if tenure.is_over(spec, env.cx.now) {
            if self.accepts.is_some() && tenure.is_overheld(spec) {
                self.may_be_known = true;
                return self.fail(&mut env.cx, &too_old());
            }
            // The answer took longer than the lease lives: ask again with the same lease ID.
            let failure = Failure::Unknown(Error::no_answer());
            return self.failed(env, who, flight, &failure);
        }
        self.attempt.settle_doubt(flight.sent);
        tenure
            .kept
            .manual
            .set_doubt(self.attempt.unanswered().map(Doubt::until));
        Next::Hold(tenure)
    }

    fn busy(
        &mut self,
        env: &mut Single,
        who: &Who,
        flight: Flight,
        (expires, place, time): (ServerTime, Option<NonZeroU32>, ServerTime),
    ) -> Next {
        let (now, moved) = (env.cx.now, place.is_some() && self.place != place);
        self.refused(flight, time);
        let ahead = place.map_or(0, |place| place.get() - 1);
        let is_new = self.place.is_none();
        self.place = place.or(self.place);
        if is_new && who.spec.max_line.is_some_and(|most| ahead >= most) {
            return self.fail(&mut env.cx, &line_full(ahead));
        }
        // A lock stays held through the millisecond in which it expires.
        let is_held = expires.millis() >= time.millis();
        let at_expiry = is_held.then(|| now + expires.since(time) + Duration::from_millis(1));
        let next = if self.asks_again {
            now
        } else {
            let hears = env.servers.hears(flight.server);
            line::next_ask(now, (who.spec.ttl, who.lease), hears, at_expiry, place)
        };
        self.attempt.pace = Pace::due_at(next);
        let next = self.dismiss(env);
        if moved && matches!(next, Next::Stay) {
            let (name, position) = (who.spec.name.clone(), place.map(NonZeroU32::get));
            who.emit(&mut env.cx, LeaseEvent::Waiting { name, position }, None);
            env.servers.want_pushes(&mut env.cx, flight.server);
        }
        next
    }

    /// Answers all callers with "not acquired": their tick was completed before, so it is given to nobody.
    fn completed(&mut self, env: &mut Single, flight: Flight, time: ServerTime) -> Next {
        self.refused(flight, time);
        self.place = None;
        for caller in self.callers.take() {
            env.cx.answer(caller.call, Answer::Acquire(Ok(None)));
        }
        Next::Leave
    }

    /// Answers callers that do not wait with "not acquired", and fails the others: the line is full.
    fn line_full(
        &mut self,
        env: &mut Single,
        flight: Flight,
        (waiting, time): (u32, ServerTime),
    ) -> Next {
        self.refused(flight, time);
        self.place = None;
        self.dismiss(env);
        self.fail(&mut env.cx, &line_full(waiting))
    }

    fn failed(&mut self, env: &mut Single, who: &Who, flight: Flight, failure: &Failure) -> Next {
        let (now, patience) = (env.cx.now, env.cx.settings.patience);
        let linked = env.servers.is_up(flight.server);
        self.may_be_known |= self.attempt.failed(&mut env.servers, flight, failure);
        if !failure.error().is_transient() {
            return self.fail(&mut env.cx, failure.error());
        }
        // True if an earlier caller with a shorter timeout ended the attempt early.
        let attempt_time = self.patience_of_one(&env.cx, &who.spec);
        let full = flight.sent + attempt_time;
        let cut_short = flight.sent < flight.give_up && flight.give_up <= now && now < full;
        // An attempt cut short by its caller does not explain earlier silence.
        let says_why = !cut_short && matches!(failure, Failure::Unknown(_));
        let before = self.silence.take();
        let since = before.as_ref().map_or(flight.sent, |(since, _)| *since);
        let why = before.filter(|_| !says_why).map(|(_, why)| why);
        let error = why.unwrap_or_else(|| failure.error().clone());
        self.silence = Some((since, error.clone()));
        self.attempt
            .pace
            .back_off(now, retry(attempt_time), who.lease);
        let impatient = self.callers.remove(|caller| match caller.wait {
            // Without a connection, an attempt on the next connection follows.
            Wait::Never => !cut_short && (linked || now >= caller.asked + attempt_time),
            Wait::Forever => now.since(since.max(caller.asked)) >= patience,
            Wait::Until(_) => false,
        });
        for caller in impatient {
            caller.fail(&mut env.cx, error.clone());
        }
        self.dismiss(env)
    }

    /// Answers the callers whose timeout has passed.
    fn dismiss(&mut self, env: &mut Single) -> Next {
        let (now, under_way) = (env.cx.now, self.attempt.under_way());
        // A caller that does not wait takes the first answer after its call.
        let answered = under_way.is_none() && self.refused.is_some() && self.silence.is_none();
        let over = self.callers.remove(|caller| match caller.wait {
            Wait::Never => answered,
            Wait::Until(until) => until <= now,
            Wait::Forever => false,
        });
        if over.is_empty() {
            return Next::of(&self.callers);
        }
        let result =
            match &self.silence {
                Some((_, error)) => Err(error.clone()),
                None if self.refused.is_some() => Ok(None),
                None => Err(under_way
                    .map_or_else(Error::no_answer, |flight| env.servers.why_no_answer(flight))),
            };
        for caller in over {
            env.cx.answer(caller.call, Answer::Acquire(result.clone()));
        }
        Next::of(&self.callers)
    }
}

/// Returns the error if the options do not allow the name's capacity.
fn refused_capacity(spec: &LockSpec, capacity: u32) -> Option<Error> {
    let wanted = spec.owner.share()?.capacity();
    (spec.strict && capacity != wanted).then(|| {
        let message = format!(
            "the capacity of the name is {capacity}, not {wanted}: resize it, or do not set `strict`"
        );
        Error::new(ErrorKind::Config, message)
    })
}

fn line_full(waiting: u32) -> Error {
    let message = format!("the line is full: {waiting} in line");
    Error::new(ErrorKind::Overloaded, message)
}

/// Returns the error for a claim that can never fit.
fn excess(spec: &LockSpec, capacity: u32) -> Error {
    let weight = spec.owner.share().map_or(0, Share::weight);
    let message = format!("the weight is {weight}; the capacity of the name is {capacity}");
    Error::new(ErrorKind::Config, message)
}

/// Returns the operation that accepts a tenure. The store, too, ends the lease at about the age that was allowed.
fn accept(env: &Single, spec: &LockSpec, mut claim: Claim, passed: &Passed) -> Accept {
    let server = env.servers.of(&spec.key);
    if let (Some(ends), Some(clock)) = (passed.ends, env.servers.clock(server, env.cx.now)) {
        // As much as a last renewal asks for, so that the deadline reaches the age.
        let left = env.servers.margin(server).outlasting(ends.since(clock));
        claim.ttl = claim.ttl.min(left + ROUNDED_OFF);
    }
    Accept {
        key: spec.key.clone(),
        lease: passed.lease,
        token: passed.token,
        claim,
    }
}

/// Returns the error for a ticket whose lease was held for as long as its lock allowed.
fn too_old() -> Error {
    let message = "the lease has reached the age that `at_most` allowed; the lock was freed";
    Error::new(ErrorKind::Overheld, message)
}

/// The news that a waiter got the lock, or a part of a shared name.
#[derive(Clone, Debug)]
pub(super) struct HandedOver {
    pub(super) lease: LeaseId,
    pub(super) grant: Grant,
    /// The server's clock at that time.
    pub(super) time: ServerTime,
    /// The state of a shared name and the slots of the new permit. No push has them.
    pub(super) admission: Option<Arc<Admission>>,
}

impl HandedOver {
    /// Reads the reply to a release that the server executed at this time.
    pub(super) fn read(reply: &Reply, time: ServerTime) -> Option<Self> {
        let Reply::HandedOver {
            lease,
            grant,
            admission,
        } = reply
        else {
            return None;
        };
        Some(Self {
            lease: *lease,
            grant: *grant,
            time,
            admission: admission.clone(),
        })
    }
}

/// Grants.
impl Acquiring {
    /// Takes a lock that was handed to this waiter. The grant and the clocks give its deadline, so the waiter
    /// need not ask again. After a push it renews at once, because the store gave it only the time to take
    /// the lock up. If the lock needs copies, the waiter asks instead, since nothing has waited for the
    /// copies yet. The holder of a part of a name asks for its slots, which no push tells. The request whose reply
    /// has the news left at `asked`, which is `None` for a push.
    pub(super) fn granted(
        &mut self,
        env: &mut Single,
        who: &Who,
        (server, asked): (ServerId, Option<Timestamp>),
        handed: HandedOver,
    ) -> Next {
        let HandedOver {
            grant,
            time,
            admission,
            ..
        } = handed;
        let spec = &who.spec;
        // If the store later reported another holder, the granted tenure had ended by then.
        let is_over = |(by, at): (ServerId, ServerTime)| by == server && at > time;
        let is_known = match &admission {
            Some(admission) => refused_capacity(spec, admission.capacity).is_none(),
            None => spec.owner.share().is_none(),
        };
        if spec.durability.is_some() || !is_known {
            return self.ask_now(env, who);
        }
        let granted_at = asked.or_else(|| env.servers.not_before(&env.cx, server, time));
        let Some(began) = granted_at.filter(|_| !self.refused.is_some_and(is_over)) else {
            return self.ask_now(env, who);
        };
        let most = asked.map_or(line::promised(spec.ttl), |_| spec.ttl);
        let deadline = env
            .servers
            .deadline(server, began, time, (grant.expires, most));
        let mut tenure = Tenure::begin(who, grant.token, (began, deadline));
        if tenure.is_over(spec, env.cx.now) {
            return self.ask_now(env, who);
        }
        self.admission = admission;
        tenure.kept.unconfirmed = asked.is_none();
        tenure
            .kept
            .manual
            .set_doubt(self.attempt.abandon(&mut env.servers));
        Next::Hold(tenure)
    }

    /// Records that a push ended a tenure. The push may overtake the answer that grants that tenure, because
    /// they use different connections.
    pub(super) fn taken_away(&mut self, token: FencingToken, reason: LossReason) {
        self.taken_away = Some((token, reason));
    }

    /// Returns the loss reason if a push already ended the tenure with this token.
    pub(super) fn was_taken_away(&self, token: FencingToken) -> Option<LossReason> {
        let (of, reason) = self.taken_away?;
        (of == token).then_some(reason)
    }
}
