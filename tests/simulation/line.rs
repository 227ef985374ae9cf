//! The order of waiters (I7), judged by the commands that the server executed and not by its own line.
//!
//! The promise has these parts:
//! 1. Among the live waiters of a name, none is granted it before one whose first waiting request was
//!    executed earlier.
//! 2. A waiter is alive while its requests are executed no further apart than the claim's window.
//! 3. A reclaim does not count as a grant: it takes the lock from its own owner's earlier incarnation.
//! 4. A waiter that was silent for longer may have lost its place, and then stands where it asked again.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_engine::protocol::{
    Admit, Claim, Command, LeaseId, LockKey, Release, Reply, Retire, Vacate,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{Error, FencingToken, Share};

use crate::checks::{Checks, Stored};
use crate::shared::{self, Change, Permit};

/// A command that the server executed in time, and its effect.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Step<'a> {
    pub(crate) server: usize,
    pub(crate) time: ServerTime,
    pub(crate) command: &'a Command,
    pub(crate) before: Stored,
    pub(crate) after: Stored,
    /// When the lock expires now.
    pub(crate) expires: Option<ServerTime>,
    pub(crate) reply: &'a Result<Reply, Error>,
    /// True if the asking lease had a place in the server's line and still has it.
    pub(crate) kept_place: bool,
    /// The effect of an operation on a shared name.
    pub(crate) change: Option<&'a Change>,
}

impl Step<'_> {
    /// Returns the lease that this step gave the lock.
    pub(crate) fn granted(&self) -> Option<(LeaseId, FencingToken)> {
        let is_lease = |(lease, _): &(LeaseId, FencingToken)| *lease != Retire::NO_LEASE;
        let after = self.after.filter(is_lease);
        after.filter(|after| self.before != Some(*after))
    }

    /// Returns the lease that the command is about, if any.
    pub(crate) fn asker(&self) -> Option<LeaseId> {
        match self.command {
            Command::Acquire(acquire) => Some(acquire.claim.lease),
            Command::Accept(accept) => Some(accept.claim.lease),
            Command::Release(Release { claim, .. }) => Some(claim.lease),
            command => shared::claim_of(command).map(|claim| claim.lease),
        }
    }

    /// True if the reply, and no push, tells of this holder.
    pub(crate) fn tells_of(&self, holder: LeaseId) -> bool {
        matches!(self.reply, Ok(Reply::HandedOver { lease, .. }) if *lease == holder)
    }

    pub(crate) fn is_reclaim(&self) -> bool {
        let takes = matches!(self.command, Command::Acquire(_) | Command::Accept(_));
        takes && self.before.is_some()
    }
}

/// Returns the lease of a stored claim. It stands behind three times, of 11, 5 and 11 digits.
pub(crate) fn lease_of_claim(claim: &str) -> Option<LeaseId> {
    claim.get(27..59)?.parse().ok()
}

#[derive(Debug)]
struct Waiting {
    claim: Claim,
    /// How long the waiter counts as alive, in milliseconds of the clock of the server that has the name.
    live_until: u64,
    /// True if the waiter was never silent for longer than its window, and its tick is not completed.
    steady: bool,
}

/// The waiters of each lock in the order of their first requests.
#[derive(Debug, Default)]
pub(crate) struct Lines(BTreeMap<LockKey, Vec<Waiting>>);

impl Lines {
    pub(crate) fn place(&self, key: &LockKey, lease: LeaseId) -> Option<usize> {
        let mut line = self.0.get(key)?.iter();
        line.position(|waiting| waiting.claim.lease == lease)
    }

    /// Removes a line, because the store lost its data.
    pub(crate) fn forget(&mut self, key: &LockKey) {
        self.0.remove(key);
    }

    /// Moves times to the clock of another server that has the line now: it said `now` when the old one said
    /// `then`.
    pub(crate) fn shift(&mut self, key: &LockKey, then: u64, now: u64) {
        for waiting in self.0.get_mut(key).into_iter().flatten() {
            waiting.live_until = (waiting.live_until + now).saturating_sub(then);
        }
    }
}

impl Checks {
    /// Follows the line, and checks each grant.
    pub(crate) fn follow_line(&mut self, step: &Step) {
        let Some(key) = step.command.key() else {
            return;
        };
        let now = step.time.millis();
        let mut line = self.lines.0.remove(key).unwrap_or_default();
        let completed = self.completed(key);
        for waiting in &mut line {
            let tick = waiting.claim.owner.tick();
            let is_over = tick.is_some_and(|tick| tick <= completed);
            waiting.steady &= waiting.live_until >= now && !is_over;
        }
        if let Command::Release(Release { claim, .. }) = step.command {
            line.retain(|waiting| waiting.claim.lease != claim.lease);
        }
        if let (Command::Acquire(acquire), Ok(Reply::Completed)) = (step.command, step.reply) {
            line.retain(|waiting| waiting.claim.lease != acquire.claim.lease);
        }
        if let Some((lease, token)) = step.granted() {
            let place = line.iter().position(|waiting| waiting.claim.lease == lease);
            if !step.is_reclaim() {
                self.check_order(&line, lease, place);
            }
            if step.asker() != Some(lease) {
                let waiting = place.and_then(|place| line.get(place));
                self.check_handover(step, (lease, token, step.expires), waiting);
            }
            line.retain(|waiting| waiting.claim.lease != lease);
        }
        self.follow_waiter(&mut line, step);
        self.lines.0.insert(key.clone(), line);
    }

    /// Follows the line of a shared name, and checks each permit that the command granted.
    pub(crate) fn follow_shared_line(&mut self, step: &Step, admitted: &[(LeaseId, Permit)]) {
        let (Some(key), Some(change)) = (step.command.key(), step.change) else {
            return;
        };
        let now = step.time.millis();
        let mut line = self.lines.0.remove(key).unwrap_or_default();
        for waiting in &mut line {
            waiting.steady &= waiting.live_until >= now;
        }
        if let Command::Vacate(Vacate(release)) = step.command {
            line.retain(|waiting| waiting.claim.lease != release.claim.lease);
        }
        // The server sends one away that can never fit, once it is the first.
        let capacity = change.after.as_ref().map(|state| state.capacity);
        let never_fits = |waiting: &Waiting| {
            let weight = waiting.claim.owner.share().map(Share::weight);
            let waits = change.line.contains(&waiting.claim.lease);
            capacity.is_some() && weight > capacity && !waits
        };
        if line.iter().any(never_fits) {
            self.saw("a waiter that never fits left");
        }
        line.retain(|waiting| !never_fits(waiting));
        for (lease, permit) in admitted {
            let place = line
                .iter()
                .position(|waiting| waiting.claim.lease == *lease);
            self.check_order(&line, *lease, place);
            if step.asker() != Some(*lease) {
                let waiting = place.and_then(|place| line.get(place));
                self.check_handover(step, (*lease, permit.token, Some(permit.until)), waiting);
                self.saw("a part was handed over");
            }
            line.retain(|waiting| waiting.claim.lease != *lease);
        }
        self.follow_waiter(&mut line, step);
        self.lines.0.insert(key.clone(), line);
    }

    fn follow_waiter(&mut self, line: &mut Vec<Waiting>, step: &Step) {
        if let (
            Command::Acquire(acquire) | Command::Admit(Admit(acquire)),
            Ok(Reply::Busy { place, .. }),
        ) = (step.command, step.reply)
            && acquire.waits
        {
            let own = self.take_place(line, step, &acquire.claim);
            let place = place.and_then(|place| usize::try_from(place.get()).ok());
            let ahead = line[..own].iter().filter(|waiting| waiting.steady).count();
            let fits = place.is_some_and(|place| place > ahead);
            self.ensure("I7", fits, || {
                format!(
                    "{} has {ahead} before it and place {place:?}",
                    acquire.claim.lease
                )
            });
        }
    }

    /// Returns the asker's place in the line, counted from 0.
    fn take_place(&mut self, line: &mut Vec<Waiting>, step: &Step, claim: &Claim) -> usize {
        let place = line
            .iter()
            .position(|waiting| waiting.claim.lease == claim.lease);
        let window = claim.window.min(Claim::LONGEST_WINDOW);
        let waiting = Waiting {
            claim: claim.clone(),
            live_until: step.time.millis() + u64::try_from(window.as_millis()).unwrap_or(0),
            steady: true,
        };
        if let Some(place) = place {
            let steady = line[place].steady;
            self.ensure("I7", step.kept_place || !steady, || {
                format!("{} is alive and lost its place", claim.lease)
            });
            if step.kept_place {
                line[place] = waiting;
                return place;
            }
            line.remove(place);
            self.saw("lost its place");
        } else {
            self.saw("waited in line");
        }
        line.push(waiting);
        line.len() - 1
    }

    fn check_order(&mut self, line: &[Waiting], lease: LeaseId, place: Option<usize>) {
        let before = &line[..place.unwrap_or(line.len())];
        let overtaken = before.iter().find(|waiting| waiting.steady);
        self.ensure("I7", overtaken.is_none(), || {
            format!("{lease}, at {place:?}, was granted the lock before {overtaken:?}")
        });
        if place.is_some_and(|place| place > 0) {
            self.saw("the dead were passed over");
        }
    }

    /// Checks that a release names the next holder only to a client that owns that lease, and with its token and expiry.
    fn check_reply(
        &mut self,
        step: &Step,
        next: &Claim,
        granted: (FencingToken, Option<ServerTime>),
    ) {
        let (
            Command::Release(release) | Command::Vacate(Vacate(release)),
            Ok(Reply::HandedOver { grant, .. }),
        ) = (step.command, step.reply)
        else {
            return self.ensure("I7", false, || format!("{step:?} hands no lock over"));
        };
        let asker = release.claim.client;
        self.ensure("I7", asker == next.client, || {
            format!("{asker:?} was told of a lease of {:?}", next.client)
        });
        let told = (grant.token, Some(grant.expires));
        self.ensure("I2", told == granted, || {
            format!("{told:?} was told of {granted:?}")
        });
    }

    /// Checks a lock that was handed to a lease that did not ask just now. The lease must be a live waiter.
    /// If it is dead after all, it delays the others for its window, or for half of it if no client listens
    /// for it. A lease of the releasing client has its whole time to live, as the reply tells that client.
    fn check_handover(
        &mut self,
        step: &Step,
        (lease, token, expires): (LeaseId, FencingToken, Option<ServerTime>),
        waiting: Option<&Waiting>,
    ) {
        let now = step.time.millis();
        let alive = waiting.is_some_and(|waiting| waiting.live_until >= now);
        self.ensure("I7", alive, || {
            format!("the lock was handed to {lease}, which is no live waiter: {waiting:?}")
        });
        let client = waiting.map(|waiting| waiting.claim.client);
        let heard = client.is_some_and(|client| self.listeners.contains(&(step.server, client)));
        let window = waiting.map_or(Duration::ZERO, |waiting| waiting.claim.window);
        let most = match waiting {
            Some(waiting) if step.tells_of(lease) => {
                self.check_reply(step, &waiting.claim, (token, expires));
                waiting.claim.ttl
            }
            _ if heard => window,
            _ => window / 2,
        };
        let expires = expires.map_or(0, ServerTime::millis);
        let kept = u128::from(expires.saturating_sub(now)) <= most.as_millis();
        self.ensure("I7", kept, || {
            format!("{lease} delays the others from {now} to {expires}, longer than {most:?}")
        });
        self.saw(if step.tells_of(lease) {
            "handed over in the reply"
        } else if heard {
            "handed over"
        } else {
            "handed over unheard"
        });
        if self.dead.contains(&lease) {
            self.saw("handed over to the dead");
        }
    }
}
