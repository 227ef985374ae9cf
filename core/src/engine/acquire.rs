//! From wanting a lock to holding it, or not.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::acquiring::{Acquiring, Caller};
use super::contender::{Contender, Phase};
use super::io::{Acquired, Done, LockId, LockSpec, Wait};
use super::link::{Answer, came_late, mismatch};
use super::pace::{FIRST_RETRY, Flight, Pace, SLOWEST_RETRY};
use super::release::Doubt;
use super::table::Short;
use super::tenure::Tenure;
use super::{Engine, Whose};
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
use crate::protocol::{Acquire, Command, Grant, LeaseId, Reclaim, Reply};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// How many calls may share one acquisition.
const MAX_CALLERS: usize = 65_536;

impl Engine {
    pub(super) fn acquire(
        &mut self,
        lock: LockId,
        spec: Arc<LockSpec>,
        lease: LeaseId,
        caller: Caller,
    ) {
        let shared = self.locks.get(&lock).and_then(|lock| lock.shared);
        if let Some(id) = shared {
            return self.join(id, caller);
        }
        if caller.until() <= self.now {
            return self.complete(caller.call, Err(no_time()));
        }
        let id = Short::of(lease);
        if self.contenders.contains_key(&id) || self.releases.contains_key(&id) {
            let error = Error::new(ErrorKind::Config, "the lease id is in use already");
            return self.complete(caller.call, Err(error));
        }
        let mut acquiring = Acquiring::new(lease, self.now);
        acquiring.add(caller);
        self.add_contender(id, Contender::new(lock, spec, acquiring));
        self.attempt(id);
        self.settle(id);
    }

    /// A further call through a re-entrant handle that has the lock or acquires it.
    fn join(&mut self, id: Short, caller: Caller) {
        let now = self.now;
        let Some(contender) = self.contenders.get_mut(&id) else {
            return;
        };
        match &mut contender.phase {
            Phase::Held(tenure) if tenure.leases == u32::MAX => {
                let message = "4,294,967,295 leases share this tenure already";
                let error = Error::new(ErrorKind::Overloaded, message);
                self.complete(caller.call, Err(error));
            }
            Phase::Held(tenure) => {
                tenure.leases += 1;
                let grant = tenure.grant(contender.lock, Duration::ZERO);
                self.complete(caller.call, Ok(Done::Acquired(grant)));
            }
            Phase::Acquiring(_) if caller.until() <= now => {
                self.complete(caller.call, Err(no_time()));
            }
            Phase::Acquiring(acquiring) if acquiring.callers.len() >= MAX_CALLERS => {
                let message = format!("{MAX_CALLERS} calls wait for this lock already");
                let error = Error::new(ErrorKind::Overloaded, message);
                self.complete(caller.call, Err(error));
            }
            Phase::Acquiring(acquiring) => {
                let asks_now = caller.wait == Wait::Never && acquiring.flight.is_none();
                let waits = caller.wait != Wait::Never;
                // What is under way for others may ask for no place in line.
                acquiring.asks_again |= waits && acquiring.flight.is_some() && !acquiring.waits();
                acquiring.add(caller);
                if asks_now {
                    self.attempt(id);
                }
            }
        }
        self.settle(id);
    }

    pub(super) fn acquiring_time(&mut self, id: Short) {
        self.dismiss_callers(id);
        let now = self.now;
        let Some((_, acquiring)) = self.acquiring(id) else {
            return;
        };
        match acquiring.flight {
            Some(flight) if flight.give_up <= now => self.attempt_late(id, flight),
            None if acquiring.pace.next <= now => self.attempt(id),
            _ => {}
        }
    }

    /// There was no answer in time; perhaps since the attempt has not left yet.
    fn attempt_late(&mut self, id: Short, flight: Flight) {
        let now = self.now;
        let (timeout, patience) = (self.settings.command_timeout, self.settings.patience);
        // Without a link it is a failure, after which those who wait have patience.
        let linked = self.anchor().is_some();
        let Some((spec, acquiring)) = self.acquiring(id) else {
            return;
        };
        let longer = (now + acquiring.attempt_time(spec, timeout)).min(acquiring.latest);
        let give_up = longer.min(flight.sent + patience);
        let waits = linked && acquiring.waits();
        let longer = waits.then(|| self.wait_on(flight, give_up)).flatten();
        if let (Some(longer), Some((_, acquiring))) = (longer, self.acquiring(id)) {
            acquiring.flight = Some(longer);
        } else {
            let error = self.why_no_answer(flight.attempt);
            self.attempt_failed(id, flight, &error);
        }
    }

    pub(super) fn acquiring_answer(&mut self, id: Short, flight: Flight, answer: Answer) {
        match answer {
            Ok((Reply::Held(held), time)) => self.acquired(id, flight, held, time),
            Ok((Reply::Busy { expires, place }, time)) => {
                self.busy(id, flight, (expires, place), time);
            }
            Ok((Reply::Reclaimable { token }, time)) => self.reclaimable(id, flight, token, time),
            Ok((Reply::Full { waiting }, time)) => self.line_full(id, flight, waiting, time),
            Ok((Reply::Late, _)) => self.came_late(id, flight),
            Ok(_) => self.attempt_failed(id, flight, &mismatch()),
            Err(error) => self.attempt_failed(id, flight, &error),
        }
    }

    /// The server did nothing. Its clock was not where the anchor said; by this reply it is known
    /// anew, so asking again at once may succeed.
    fn came_late(&mut self, id: Short, flight: Flight) {
        let Some((_, acquiring)) = self.acquiring(id) else {
            return;
        };
        if acquiring.pace.failures > 0 {
            return self.attempt_failed(id, flight, &came_late());
        }
        acquiring.pace.failures = 1;
        self.attempt(id);
    }

    /// Ends the acquisition with this error for everyone who waits.
    pub(super) fn fail_acquiring(&mut self, id: Short, error: &Error) {
        let Some((_, acquiring)) = self.acquiring(id) else {
            return;
        };
        for caller in std::mem::take(&mut acquiring.callers) {
            self.complete(caller.call, Err(error.clone()));
        }
        self.end_acquiring(id);
    }

    /// Nobody wants the lock any more. If it may have been taken all the same, it is given back;
    /// and its place in line is given up.
    pub(super) fn end_acquiring(&mut self, id: Short) {
        let doubt = self.doubt_of_acquiring(id);
        if self.acquiring(id).is_none() {
            return;
        }
        let Some(Contender {
            lock,
            spec,
            phase: Phase::Acquiring(acquiring),
            ..
        }) = self.take_contender(id)
        else {
            return;
        };
        let in_line = acquiring.place.is_some() || acquiring.lost_ask;
        if doubt.is_some() || in_line {
            self.give_back(&spec, acquiring.lease, doubt, spec.ttl);
        }
        self.leave(lock);
    }

    /// Which attempts may still do something: the last, if it is under way, and those before it
    /// that were never answered.
    pub(super) fn doubt_of_acquiring(&mut self, id: Short) -> Option<Doubt> {
        let (_, acquiring) = self.acquiring(id)?;
        let (flight, earlier) = (acquiring.flight, acquiring.doubt);
        let under_way = flight.filter(|flight| !self.unsend(flight.attempt));
        let until = under_way.map(|flight| flight.give_up).max(earlier)?;
        // The answer to the last attempt says nothing of earlier ones.
        let attempt = under_way
            .filter(|_| earlier.is_none())
            .map(|flight| flight.attempt);
        Some(Doubt { attempt, until })
    }

    fn attempt(&mut self, id: Short) {
        let (now, client) = (self.now, self.settings.client);
        let timeout = self.settings.command_timeout;
        let attempt = self.next_serial();
        let Some((spec, acquiring)) = self.acquiring(id) else {
            return;
        };
        let give_up = (now + acquiring.attempt_time(spec, timeout)).min(acquiring.latest);
        acquiring.asks_again = false;
        let flight = Flight {
            attempt,
            sent: now,
            give_up,
        };
        acquiring.flight = Some(flight);
        let command = Command::Acquire(Acquire {
            key: spec.key.clone(),
            claim: spec.claim(client, acquiring.lease),
            ttl: spec.ttl,
            waits: acquiring.waits(),
            reclaims: acquiring.reclaims,
        });
        self.send(Whose::Contender(id), flight, command);
    }

    fn acquired(&mut self, id: Short, flight: Flight, held: Grant, time: ServerTime) {
        let (now, margin) = (self.now, self.margin());
        let Some((spec, acquiring)) = self.acquiring(id) else {
            return;
        };
        // The lock was asked for no longer than this, whatever the answer says.
        let expires = held.expires.min(time + spec.ttl);
        let deadline = margin.deadline(flight.sent, time, expires);
        let mut tenure = Tenure::new(spec, acquiring.lease, held.token, flight.sent, deadline);
        if tenure.is_over(spec, now) {
            // The answer took longer than the lease lives: ask again with the same lease id.
            return self.attempt_failed(id, flight, &Error::no_answer());
        }
        // What could not take effect any more when this attempt was sent is in no doubt.
        let doubt = acquiring.doubt.filter(|until| *until > flight.sent);
        tenure.set_doubt(doubt.map(Doubt::until));
        self.start_tenure(id, tenure);
    }

    /// The lock is held, by all who called for it.
    pub(super) fn start_tenure(&mut self, id: Short, mut tenure: Tenure) {
        let now = self.now;
        let Some(contender) = self.contenders.get_mut(&id) else {
            return;
        };
        let Phase::Acquiring(acquiring) = &mut contender.phase else {
            return;
        };
        let (lock, name) = (contender.lock, contender.spec.name.clone());
        let callers = std::mem::take(&mut acquiring.callers);
        let taken_away = acquiring
            .taken_away
            .filter(|(token, _)| *token == tenure.token);
        tenure.leases = u32::try_from(callers.len()).unwrap_or(u32::MAX);
        // That the lock could be taken proves that the tenure before is over.
        self.confirm_release(lock, tenure.token);
        let event = LeaseEvent::Acquired {
            name,
            token: tenure.token,
            remaining: tenure.deadline.since(now),
        };
        self.emit((lock, tenure.lease), event, Some(tenure.deadline));
        for caller in callers {
            let grant = tenure.grant(lock, now.since(caller.asked));
            self.complete(caller.call, Ok(Done::Acquired(grant)));
        }
        self.hold(id, tenure);
        self.want_pushes();
        if let Some((_, reason)) = taken_away {
            self.give_back_at_loss(id);
            self.lose(id, reason);
        }
    }

    fn busy(
        &mut self,
        id: Short,
        flight: Flight,
        (expires, place): (Option<ServerTime>, Option<NonZeroU32>),
        time: ServerTime,
    ) {
        let now = self.now;
        let Some(contender) = self.contenders.get_mut(&id) else {
            return;
        };
        let Phase::Acquiring(acquiring) = &mut contender.phase else {
            return;
        };
        let (lock, spec) = (contender.lock, contender.spec.clone());
        let moved = place.is_some() && acquiring.place != place;
        acquiring.answered(flight.sent, time);
        acquiring.place = place.or(acquiring.place);
        let (lease, asks_again) = (acquiring.lease, acquiring.asks_again);
        // Redis lets a key live through the millisecond it expires in.
        let at_expiry = expires
            .filter(|at| at.millis() >= time.millis())
            .map(|at| now + at.since(time) + Duration::from_millis(1));
        let next = if asks_again {
            now
        } else {
            self.next_ask(&spec, lease, at_expiry, place)
        };
        if let Some((_, acquiring)) = self.acquiring(id) {
            acquiring.pace = Pace::due(next);
        }
        self.dismiss_callers(id);
        if moved && self.acquiring(id).is_some() {
            let (name, position) = (spec.name.clone(), place.map(NonZeroU32::get));
            self.emit((lock, lease), LeaseEvent::Waiting { name, position }, None);
            self.want_pushes();
        }
    }

    /// Its owner has the lock at another client: it asks at once for exactly that tenure.
    fn reclaimable(&mut self, id: Short, flight: Flight, token: FencingToken, time: ServerTime) {
        match self.acquiring(id) {
            Some((_, acquiring)) if acquiring.reclaims == Reclaim::Ask => {
                acquiring.reclaims = Reclaim::From(token);
                acquiring.answered(flight.sent, time);
                self.attempt(id);
            }
            _ => self.attempt_failed(id, flight, &mismatch()),
        }
    }

    /// Those who do not wait have their answer, and the others an error.
    fn line_full(&mut self, id: Short, flight: Flight, waiting: u32, time: ServerTime) {
        if let Some((_, acquiring)) = self.acquiring(id) {
            acquiring.answered(flight.sent, time);
            acquiring.place = None;
        }
        self.dismiss_callers(id);
        let message = format!("{waiting} wait for this lock already");
        self.fail_acquiring(id, &Error::new(ErrorKind::Overloaded, message));
    }

    fn attempt_failed(&mut self, id: Short, flight: Flight, error: &Error) {
        let (now, patience) = (self.now, self.settings.patience);
        let timeout = self.settings.command_timeout;
        let unsent = self.unsend(flight.attempt);
        let linked = self.anchor().is_some();
        let Some((spec, acquiring)) = self.acquiring(id) else {
            return;
        };
        acquiring.flight = None;
        // An earlier caller, who waited for less, ended the attempt.
        let attempt_time = acquiring.attempt_time(spec, timeout);
        let full = flight.sent + attempt_time;
        let cut_short = flight.sent < flight.give_up && flight.give_up <= now && now < full;
        let refused = matches!(
            error.kind(),
            ErrorKind::WrongType | ErrorKind::Auth | ErrorKind::ReadOnly
        );
        if flight.give_up > flight.sent && !refused && !unsent {
            acquiring.doubt = acquiring.doubt.max(Some(flight.give_up));
            acquiring.lost_ask = true;
        }
        if !error.is_transient() {
            return self.fail_acquiring(id, error);
        }
        let since = acquiring
            .silence
            .as_ref()
            .map_or(flight.sent, |(since, _)| *since);
        acquiring.silence = Some((since, error.clone()));
        acquiring
            .pace
            .back_off(now, FIRST_RETRY, SLOWEST_RETRY, acquiring.lease);
        let impatient = acquiring.remove(|caller| match caller.wait {
            // Without a link it is tried once more, on the next one.
            Wait::Never => !cut_short && (linked || now >= caller.asked + attempt_time),
            Wait::Forever => now.since(since.max(caller.asked)) >= patience,
            Wait::Until(_) => false,
        });
        for caller in impatient {
            self.complete(caller.call, Err(error.clone()));
        }
        self.dismiss_callers(id);
    }

    /// Answers the callers whose time to wait is over, and ends the acquisition if it was all.
    fn dismiss_callers(&mut self, id: Short) {
        let now = self.now;
        let Some((_, acquiring)) = self.acquiring(id) else {
            return;
        };
        // A caller that does not wait is content with the first answer after it asked.
        let answered = acquiring.flight.is_none()
            && acquiring.refused.is_some()
            && acquiring.silence.is_none();
        let over = acquiring.remove(|caller| match caller.wait {
            Wait::Never => answered,
            Wait::Until(until) => until <= now,
            Wait::Forever => false,
        });
        let (ended, flight) = (acquiring.callers.is_empty(), acquiring.flight);
        let result = match &acquiring.silence {
            Some((_, error)) => Err(error.clone()),
            None if acquiring.refused.is_some() => Ok(Done::Busy),
            None => Err(flight.map_or_else(Error::no_answer, |flight| {
                self.why_no_answer(flight.attempt)
            })),
        };
        for caller in over {
            self.complete(caller.call, result.clone());
        }
        if ended {
            self.end_acquiring(id);
        }
    }
}

fn no_time() -> Error {
    Error::new(
        ErrorKind::Timeout,
        "there was no time left to ask the store",
    )
}

impl Tenure {
    /// What a caller gets who waited so long.
    fn grant(&self, lock: LockId, waited: Duration) -> Acquired {
        Acquired {
            lock,
            lease: self.lease,
            token: self.token,
            deadline: self.deadline,
            began: self.began,
            waited,
        }
    }
}
