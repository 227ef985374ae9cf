//! Who is first (I7), judged by what the server executed and not by what its own line says.
//!
//! The promise: of those who wait for a name and stay alive, nobody is granted it before somebody
//! whose first waiting ask was executed earlier. To stay alive is to have asks executed no further
//! apart than the claim's window. A reclaim is no grant in this sense: it takes the lock from its
//! own owner's former self. Whoever was silent for longer may have lost its place, and then stands
//! where it asked again.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_engine::protocol::{Claim, Command, LeaseId, LockKey, Release, Reply};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{Error, FencingToken};

use crate::checks::{Checks, Stored};

/// One command that the server executed in time, and what it changed.
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
    /// Whether the one who asks had a place in the server's line, and has it still.
    pub(crate) kept_place: bool,
}

impl Step<'_> {
    /// Who has the lock since this step and had it not before it.
    pub(crate) fn granted(&self) -> Option<(LeaseId, FencingToken)> {
        self.after.filter(|after| self.before != Some(*after))
    }

    /// Whose command it is, if it is about a lease.
    pub(crate) fn asker(&self) -> Option<LeaseId> {
        match self.command {
            Command::Acquire(acquire) => Some(acquire.claim.lease),
            Command::Release(Release { claim, .. }) => Some(claim.lease),
            _ => None,
        }
    }

    /// Whether the reply says who has the lock, and no push does.
    pub(crate) fn hands_over(&self) -> bool {
        matches!(self.reply, Ok(Reply::HandedOver { .. }))
    }

    pub(crate) fn is_reclaim(&self) -> bool {
        matches!(self.command, Command::Acquire(_)) && self.before.is_some()
    }
}

/// Whose claim it is, as the store has it: the lease is behind three times, of 11, 5 and 11 digits.
pub(crate) fn lease_of_claim(claim: &str) -> Option<LeaseId> {
    claim.get(27..59)?.parse().ok()
}

#[derive(Debug)]
struct Waiting {
    claim: Claim,
    /// In milliseconds of the clock of the server that has the name.
    live_until: u64,
    /// It was never silent for longer than its window.
    steady: bool,
}

/// In the order of the first asks.
#[derive(Debug, Default)]
pub(crate) struct Lines(BTreeMap<LockKey, Vec<Waiting>>);

impl Lines {
    pub(crate) fn place(&self, key: &LockKey, lease: LeaseId) -> Option<usize> {
        let mut line = self.0.get(key)?.iter();
        line.position(|waiting| waiting.claim.lease == lease)
    }

    /// The store lost its data.
    pub(crate) fn forget(&mut self, key: &LockKey) {
        self.0.remove(key);
    }

    /// Another server has it now, and one clock said this when the other one said that.
    pub(crate) fn shift(&mut self, key: &LockKey, then: u64, now: u64) {
        for waiting in self.0.get_mut(key).into_iter().flatten() {
            waiting.live_until = (waiting.live_until + now).saturating_sub(then);
        }
    }
}

impl Checks {
    /// Follows the line, and checks who was granted the lock.
    pub(crate) fn follow_line(&mut self, step: &Step) {
        let Some(key) = step.command.key() else {
            return;
        };
        let now = step.time.millis();
        let mut line = self.lines.0.remove(key).unwrap_or_default();
        for waiting in &mut line {
            waiting.steady &= waiting.live_until >= now;
        }
        if let Command::Release(Release { claim, .. }) = step.command {
            line.retain(|waiting| waiting.claim.lease != claim.lease);
        }
        if let Some((lease, _)) = step.granted() {
            let place = line.iter().position(|waiting| waiting.claim.lease == lease);
            if !step.is_reclaim() {
                self.check_order(&line, lease, place);
            }
            if step.asker() != Some(lease) {
                let waiting = place.and_then(|place| line.get(place));
                self.check_handover(step, lease, waiting);
            }
            line.retain(|waiting| waiting.claim.lease != lease);
        }
        if let (Command::Acquire(acquire), Ok(Reply::Busy { place, .. })) =
            (step.command, step.reply)
            && acquire.waits
        {
            let own = self.take_place(&mut line, step, &acquire.claim);
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
        self.lines.0.insert(key.clone(), line);
    }

    /// The asker's place in the line, counted from 0.
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
                format!("the place of {}, who is alive, was gone", claim.lease)
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

    /// A release says itself that another lease of its own client has the lock, and nobody else is told.
    fn check_reply(&mut self, step: &Step, next: &Claim) {
        let (Command::Release(release), Ok(Reply::HandedOver { lease, grant })) =
            (step.command, step.reply)
        else {
            return self.ensure("I7", false, || format!("{step:?} hands nothing over"));
        };
        self.ensure("I7", release.claim.client == next.client, || {
            format!(
                "{:?} was told of a lease of {:?}",
                release.claim, next.client
            )
        });
        let told = (Some((*lease, grant.token)), Some(grant.expires));
        self.ensure("I2", told == (step.after, step.expires), || {
            format!(
                "{told:?} was told of {:?} until {:?}",
                step.after, step.expires
            )
        });
    }

    /// The lock was handed to somebody who did not ask just now: he must wait for it and be alive,
    /// and if he is dead after all he holds the others up for his window, or for half of it if
    /// nobody listens for him. Who is of the client that released it has his whole time, as it is told.
    fn check_handover(&mut self, step: &Step, lease: LeaseId, waiting: Option<&Waiting>) {
        let now = step.time.millis();
        let alive = waiting.is_some_and(|waiting| waiting.live_until >= now);
        self.ensure("I7", alive, || {
            format!("the lock was handed to {lease}, which does not wait: {waiting:?}")
        });
        let client = waiting.map(|waiting| waiting.claim.client);
        let heard = client.is_some_and(|client| self.listeners.contains(&(step.server, client)));
        let window = waiting.map_or(Duration::ZERO, |waiting| waiting.claim.window);
        let most = match waiting {
            Some(waiting) if step.hands_over() => {
                self.check_reply(step, &waiting.claim);
                waiting.claim.ttl
            }
            _ if heard => window,
            _ => window / 2,
        };
        let expires = step.expires.map_or(0, ServerTime::millis);
        let kept = u128::from(expires.saturating_sub(now)) <= most.as_millis();
        self.ensure("I7", kept, || {
            format!("{lease} may keep the others waiting from {now} to {expires}, and not {most:?}")
        });
        self.saw(if step.hands_over() {
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
