//! Giving locks back: by the holder, and after acquisitions that nobody wants any more.

use std::time::Duration;

use super::io::{CallId, Done, LockId, LockSpec};
use super::link::{Answer, came_late, mismatch};
use super::pace::{FIRST_RETRY, Flight, Pace, SLOWEST_RETRY};
use super::table::Short;
use super::tenure::{lost, not_held};
use super::timers::Timed;
use super::{Engine, Serial, Whose};
use crate::error::{Error, ErrorKind};
use crate::event::{LeaseEvent, LossReason};
use crate::name::Name;
use crate::protocol::{self, Claim, Command, LeaseId, LockKey, Reply};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// A release that is under way. It is tried until the store confirms it or the lock expires.
#[derive(Debug)]
pub(super) struct Release {
    key: LockKey,
    claim: Claim,
    /// What ends by it; nothing after an acquisition that never was a tenure.
    tenure: Option<Ended>,
    /// Who waits for it, and until when.
    call: Option<(CallId, Timestamp)>,
    until: Timestamp,
    ttl: Duration,
    doubt: Option<Doubt>,
    /// An earlier attempt may have freed the lock already.
    unresolved: bool,
    error: Option<Error>,
    flight: Option<Flight>,
    pace: Pace,
    pub(super) wake: Timestamp,
}

/// A tenure whose end is still to be told. Its handle waits for that.
#[derive(Debug)]
struct Ended {
    lock: LockId,
    lease: LeaseId,
    name: Name,
    token: FencingToken,
}

/// An acquisition whose answer is not known: until then it may still take effect, so the release
/// is repeated after it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Doubt {
    /// The attempt, if its answer may still come and settle the matter.
    pub(super) attempt: Option<Serial>,
    pub(super) until: Timestamp,
}

impl Doubt {
    /// About an attempt whose answer does not come any more.
    pub(super) fn until(until: Timestamp) -> Self {
        Self {
            attempt: None,
            until,
        }
    }
}

impl Release {
    /// One that nobody waits for and that says nothing.
    fn new(spec: &LockSpec, claim: Claim, until: Timestamp, now: Timestamp) -> Self {
        Self {
            key: spec.key.clone(),
            claim,
            tenure: None,
            call: None,
            until,
            ttl: spec.ttl,
            doubt: None,
            unresolved: false,
            error: None,
            flight: None,
            pace: Pace::due(now),
            wake: Timestamp::NEVER,
        }
    }

    /// For how long the store may keep what nobody releases: a lock, or a place in line that is
    /// handed the lock at its very end.
    fn lasts(&self) -> Duration {
        self.ttl.max(self.claim.window * 2)
    }

    pub(super) fn lease(&self) -> LeaseId {
        self.claim.lease
    }

    fn wake_at(&self) -> Timestamp {
        let own = self.flight.map_or(self.pace.next, |flight| flight.give_up);
        let call = self.call.map_or(Timestamp::NEVER, |(_, until)| until);
        own.min(call).min(self.until)
    }
}

impl Engine {
    /// One lease of a tenure is given up by its holder.
    pub(super) fn release(&mut self, call: Option<CallId>, lease: LeaseId) {
        let id = Short::of(lease);
        let Some((_, tenure)) = self.tenure(id).filter(|(_, held)| held.lease == lease) else {
            return self.answer(call, Err(not_held()));
        };
        tenure.leases = tenure.leases.saturating_sub(1);
        if tenure.leases > 0 {
            return self.answer(call, Ok(Done::Released));
        }
        let Some((lock, spec, mut tenure)) = self.end_tenure(id) else {
            return;
        };
        let claim = spec.claim(self.settings.client, lease);
        let release = Release {
            tenure: Some(Ended {
                lock,
                lease,
                name: spec.name.clone(),
                token: tenure.token,
            }),
            call: call.map(|call| (call, self.now + self.settings.patience)),
            ttl: tenure.longest_ttl(&spec),
            doubt: tenure.doubt(),
            ..Release::new(&spec, claim, tenure.loss_at(&spec), self.now)
        };
        for call in tenure.take_renewals() {
            let message = "the lease is not held: it was released";
            self.complete(call, Err(Error::new(ErrorKind::NotHeld, message)));
        }
        self.await_release(lock, id);
        self.start_release(id, release);
        self.leave(lock);
    }

    /// Frees whatever this lease may have in the store, for up to so long, and tells nobody.
    pub(super) fn give_back(
        &mut self,
        spec: &LockSpec,
        lease: LeaseId,
        doubt: Option<Doubt>,
        ttl: Duration,
    ) {
        let last = doubt.map_or(self.now, |doubt| doubt.until).max(self.now);
        let claim = spec.claim(self.settings.client, lease);
        let mut release = Release::new(spec, claim, last, self.now);
        release.ttl = ttl;
        release.until = last + release.lasts();
        release.doubt = doubt;
        self.start_release(Short::of(lease), release);
    }

    pub(super) fn release_time(&mut self, id: Short) {
        let now = self.now;
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        if release.until <= now {
            return self.release_expired(id);
        }
        if let Some((call, _)) = release.call.take_if(|(_, until)| *until <= now) {
            let error = self.release_error(id);
            self.complete(call, Err(error));
        }
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        match release.flight {
            Some(flight) if flight.give_up <= now => self.release_late(id, flight),
            None if release.pace.next <= now => self.attempt_release(id),
            _ => {}
        }
        self.settle_release(id);
    }

    pub(super) fn retry_release(&mut self, id: Short) {
        let now = self.now;
        if let Some(release) = self.releases.get_mut(&id)
            && release.pace.failures > 0
        {
            release.pace.next = now;
            self.release_time(id);
        }
    }

    pub(super) fn release_answer(
        &mut self,
        id: Short,
        attempt: Serial,
        sent: Option<Timestamp>,
        answer: Answer,
    ) {
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        let flight = release.flight.as_mut();
        let Some(flight) = flight.filter(|flight| flight.attempt == attempt) else {
            return;
        };
        *flight = flight.left(sent);
        let unresolved = release.unresolved;
        match answer {
            Ok((Reply::Released, _)) => self.finish_release(id, None),
            // An earlier attempt did it, and its answer was lost.
            Ok((Reply::Gone | Reply::Taken, _)) if unresolved => self.finish_release(id, None),
            Ok((Reply::Gone, _)) => self.finish_release(id, Some(LossReason::Deleted)),
            Ok((Reply::Taken, _)) => self.finish_release(id, Some(LossReason::Superseded)),
            Ok((Reply::Late, _)) => self.release_failed(id, came_late()),
            Ok(_) => self.release_failed(id, mismatch()),
            // Somebody put something else in the lock's place.
            Err(error) if error.kind() == ErrorKind::WrongType => {
                let lost_by = (!unresolved).then_some(LossReason::Superseded);
                self.finish_release(id, lost_by);
            }
            Err(error) => {
                self.release_in_doubt(id, attempt);
                self.release_failed(id, error);
            }
        }
        self.settle_release(id);
    }

    /// A lease that nobody wants any more was handed the lock: it goes on to the next.
    pub(super) fn hasten_release(&mut self, lease: LeaseId) {
        let id = Short::of(lease);
        let release = self.releases.get_mut(&id);
        if let Some(release) = release.filter(|release| release.claim.lease == lease) {
            release.pace.next = self.now;
            self.release_time(id);
        }
    }

    /// The answer to an attempt to take this lock has come that was in doubt.
    pub(super) fn resolve_doubt(&mut self, contender: Short, attempt: Serial, reply: &Reply) {
        let now = self.now;
        let is_it = |doubt: &Doubt| doubt.attempt == Some(attempt);
        if let Some((_, tenure)) = self.tenure(contender)
            && tenure.doubt().is_some_and(|doubt| is_it(&doubt))
        {
            let same = matches!(reply, Reply::Held(held) if held.token == tenure.token);
            tenure.set_doubt((!same).then_some(Doubt::until(now)));
        }
        let Some(id) = self.doubted.take(&attempt) else {
            return;
        };
        if let Some(release) = self.releases.get_mut(&id) {
            release.doubt = None;
            // Put off until what is known now: it need not wait any longer.
            if release.flight.is_none() {
                release.pace.next = now;
                self.release_time(id);
            }
        }
    }

    /// The lock was taken with this token, which proves that the tenure before is over in the store.
    pub(super) fn confirm_release(&mut self, lock: LockId, taken: FencingToken) {
        let Some(id) = self.locks.get(&lock).and_then(|lock| lock.releasing) else {
            return;
        };
        let ended = self.releases.get(&id).and_then(|it| it.tenure.as_ref());
        if ended.is_some_and(|ended| ended.token < taken) {
            self.finish_release(id, None);
        }
    }

    fn start_release(&mut self, id: Short, release: Release) {
        if let Some(attempt) = release.doubt.and_then(|doubt| doubt.attempt) {
            self.doubted.insert(attempt, id);
        }
        self.releases.insert(id, Box::new(release));
        self.attempt_release(id);
        self.settle_release(id);
    }

    fn attempt_release(&mut self, id: Short) {
        let (now, timeout) = (self.now, self.settings.command_timeout);
        let attempt = self.next_serial();
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        let give_up = (now + timeout).min(release.until);
        let flight = Flight {
            attempt,
            sent: now,
            give_up,
        };
        release.flight = Some(flight);
        let command = Command::Release(protocol::Release {
            key: release.key.clone(),
            claim: release.claim.clone(),
        });
        self.send(Whose::Release(id), flight, command);
    }

    /// There was no answer in time; perhaps since the attempt has not left yet.
    fn release_late(&mut self, id: Short, flight: Flight) {
        let timeout = self.settings.command_timeout;
        let Some(release) = self.releases.get(&id) else {
            return;
        };
        let give_up = (self.now + timeout).min(release.until);
        let longer = self.wait_on(flight, give_up);
        match self.releases.get_mut(&id) {
            Some(release) if longer.is_some() => release.flight = longer,
            _ => {
                let error = self.why_no_answer(flight.attempt);
                self.release_in_doubt(id, flight.attempt);
                self.release_failed(id, error);
            }
        }
    }

    /// An attempt that was sent may have freed the lock.
    fn release_in_doubt(&mut self, id: Short, attempt: Serial) {
        let unsent = self.unsend(attempt);
        if let Some(release) = self.releases.get_mut(&id) {
            release.unresolved |= !unsent;
        }
    }

    fn release_failed(&mut self, id: Short, error: Error) {
        let now = self.now;
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        release.flight = None;
        release
            .pace
            .back_off(now, FIRST_RETRY, SLOWEST_RETRY, release.claim.lease);
        // A refusal that stays is told at once; the release is tried on all the same.
        let refused = release.call.take_if(|_| !error.is_transient());
        release.error = Some(error.clone());
        if let Some((call, _)) = refused {
            self.complete(call, Err(error));
        }
    }

    /// Why the store has not confirmed it yet.
    fn release_error(&mut self, id: Short) -> Error {
        let release = self.releases.get(&id);
        let told = release.and_then(|release| release.error.clone());
        let flight = release.and_then(|release| release.flight);
        told.unwrap_or_else(|| {
            flight.map_or_else(Error::no_answer, |flight| {
                self.why_no_answer(flight.attempt)
            })
        })
    }

    /// The store answered; `lost` if the lease had been lost before.
    fn finish_release(&mut self, id: Short, lost_by: Option<LossReason>) {
        let now = self.now;
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        // What the server could still do after it was asked, it may do after it answered.
        let sent = release.flight.take().map_or(now, |flight| flight.sent);
        let doubt = release.doubt.filter(|doubt| doubt.until > sent);
        let (tenure, call) = (release.tenure.take(), release.call.take());
        if let Some(doubt) = doubt {
            release.pace = Pace::due(doubt.until);
            release.until = doubt.until + release.lasts();
        } else {
            self.end_release(id);
        }
        let result = lost_by.map_or(Ok(Done::Released), |reason| Err(lost(reason)));
        self.tell_end(id, tenure, lost_by);
        self.answer(call.map(|(call, _)| call), result);
        self.settle_release(id);
    }

    /// The lease is over, and the store has not confirmed its release.
    fn release_expired(&mut self, id: Short) {
        let now = self.now;
        let Some(release) = self.releases.get_mut(&id) else {
            return;
        };
        let Some(tenure) = release.tenure.take() else {
            self.end_release(id);
            return;
        };
        let call = release.call.take();
        // A renewal that was under way may have lengthened what the store has.
        release.until = now + release.ttl;
        let error = self.release_error(id);
        self.tell_end(id, Some(tenure), Some(LossReason::Expired));
        self.answer(call.map(|(call, _)| call), Err(error));
        self.settle_release(id);
    }

    /// Tells the end of a tenure, whose handle does not wait for this release any more.
    fn tell_end(&mut self, id: Short, tenure: Option<Ended>, lost_by: Option<LossReason>) {
        let Some(Ended {
            lock,
            lease,
            name,
            token,
        }) = tenure
        else {
            return;
        };
        let event = match lost_by {
            Some(reason) => LeaseEvent::Lost {
                name,
                token,
                reason,
            },
            None => LeaseEvent::Released { name, token },
        };
        self.emit((lock, lease), event, None);
        if let Some(lock) = self.locks.get_mut(&lock) {
            lock.releasing.take_if(|releasing| *releasing == id);
        }
        self.leave(lock);
    }

    fn end_release(&mut self, id: Short) {
        if let Some(mut release) = self.releases.take(&id) {
            if let Some(attempt) = release.doubt.and_then(|doubt| doubt.attempt) {
                self.doubted.take(&attempt);
            }
            let wake = &mut release.wake;
            self.timers.set(Timed::Release(id), wake, Timestamp::NEVER);
        }
    }

    fn settle_release(&mut self, id: Short) {
        if let Some(release) = self.releases.get_mut(&id) {
            let at = release.wake_at();
            self.timers.set(Timed::Release(id), &mut release.wake, at);
        }
    }

    fn answer(&mut self, call: Option<CallId>, result: Result<Done, Error>) {
        if let Some(call) = call {
            self.complete(call, result);
        }
    }
}
