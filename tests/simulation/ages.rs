//! The bounds of a lease's age: no lease is valid past the longest time that its lock allows, and after an
//! orderly release the name stays taken until its shortest time is over.

use std::sync::Arc;
use std::time::Duration;

use leasehold_engine::FencingToken;
use leasehold_engine::engine::LockSpec;
use leasehold_engine::protocol::{Command, LockKey, Reply, Retire};
use leasehold_engine::time::Timestamp;

use crate::book::Tenure;
use crate::checks::Checks;
use crate::clock::MILLI;
use crate::drain::nanos;
use crate::line::Step;
use crate::plan::Plan;
use crate::quorum::votes::SURELY;
use crate::random::Random;
use crate::sabotage::Sabotage;
use crate::world::{Process, World};

/// A name that stays taken after the release of its lock.
#[derive(Debug)]
pub(crate) struct Kept {
    process: Process,
    token: FencingToken,
    /// Until when, by the clock of the host that released it.
    until: Timestamp,
}

/// Plans whose locks have ages. No waiter is sure to be served in time, because names stay taken.
impl Plan {
    pub(crate) fn aged(random: &mut Random, sabotage: Sabotage) -> Self {
        Self::single(random, sabotage).with_ages()
    }

    pub(crate) fn aged_cluster(random: &mut Random, sabotage: Sabotage) -> Self {
        Self::cluster(random, sabotage).with_ages()
    }

    pub(crate) fn aged_quorum(random: &mut Random, sabotage: Sabotage) -> Self {
        Self::quorum(random, sabotage).with_ages()
    }

    fn with_ages(self) -> Self {
        Self {
            ages: true,
            jobs: false,
            drains: false,
            ..self
        }
    }

    /// Returns the longest and the shortest time of some lock with this time to live.
    pub(crate) fn ages_of(
        &self,
        random: &mut Random,
        ttl: Duration,
    ) -> (Option<Duration>, Option<Duration>) {
        if !self.ages {
            return (None, None);
        }
        let longest = u64::try_from(self.longest_ttl().as_millis()).unwrap_or(1);
        let factor = u32::try_from(random.between(1, 4)).unwrap_or(1);
        let most = ttl * factor + Duration::from_millis(random.below(200));
        let most = random.chance(60).then_some(most);
        let least = Duration::from_millis(random.between(1, longest));
        let least = least.min(most.unwrap_or(least));
        (most, random.chance(50).then_some(least))
    }

    /// Returns the options that the engine gets.
    pub(crate) fn given(&self, spec: &Arc<LockSpec>) -> Arc<LockSpec> {
        if self.sabotage != Sabotage::AgesForgotten {
            return spec.clone();
        }
        let mut spec = LockSpec::clone(spec);
        Arc::make_mut(&mut spec.options).at_most = None;
        Arc::new(spec)
    }
}

impl Checks {
    /// Checks that a tenure ends in time.
    pub(crate) fn check_age(
        &mut self,
        (host, now): (usize, Timestamp),
        spec: &LockSpec,
        tenure: &Tenure,
    ) {
        let (deadline, began) = (tenure.deadline, tenure.began);
        let end = spec.at_most.map(|most| began + most);
        self.ensure("age", end.is_none_or(|end| deadline <= end), || {
            format!("host {host}: {tenure:?} goes on after {end:?}")
        });
        // The host's clock may be fast, by the widest drift margin.
        let left = nanos(deadline.since(now) * 3 / 4);
        let in_time = tenure.ends.is_none_or(|ends| self.now + left <= ends);
        self.ensure("age", in_time, || {
            format!("host {host}: {tenure:?} goes on for {left} ns after it was passed on")
        });
    }
}

/// Waiters for a name that stays taken.
impl Checks {
    /// Notes until when a server keeps a name taken. Its clock may be slow.
    pub(crate) fn stays_taken(&mut self, step: &Step) {
        if let (Command::Retire(retire), Ok(Reply::Released)) = (step.command, step.reply) {
            let until = self.now + nanos(retire.ttl) * 1_001 / 1_000 + MILLI;
            let last = self.kept_until.entry(retire.key.clone()).or_default();
            *last = until.max(*last);
        }
    }

    /// True if a waiter knows that nothing keeps the name taken. Nobody is told when a name becomes free, so a
    /// waiter finds out with its next heartbeat: half of its time to live, from 1 s to 5 s.
    pub(crate) fn knows_it_is_free(&self, spec: &LockSpec) -> bool {
        let heartbeat = (spec.ttl / 2).clamp(Duration::from_secs(1), Duration::from_secs(5));
        let kept = self.kept_until.get(&spec.key);
        kept.is_none_or(|until| until + nanos(heartbeat) + SURELY < self.now)
    }
}

/// The same for every kind of store, as programs see it: when they are told of a release and of the next
/// lease.
impl Checks {
    /// Notes that a program was told, at `now` by its clock, of the release of a tenure.
    pub(crate) fn told_of_release(&mut self, spec: &LockSpec, tenure: &Tenure, now: Timestamp) {
        let until = tenure.began + spec.at_least.unwrap_or_default();
        // The host's clock may be fast, by the widest drift margin.
        let left = until.since(now) * 3 / 4;
        let until = self.now + nanos(left);
        // Somebody may have freed the name by force before the release was told, also at one member of a quorum.
        let since = self
            .granted(&spec.key, tenure.token)
            .map_or(0, |granted| granted.at);
        if self.forced.get(&spec.key).is_none_or(|at| *at < since) {
            self.released
                .insert(spec.key.clone(), (tenure.token, until));
        }
    }

    pub(crate) fn told_of_lease(&mut self, spec: &LockSpec, token: FencingToken) {
        let Some((former, until)) = self.released.remove(&spec.key) else {
            return;
        };
        let free = self.now >= until || token <= former || self.is_disturbed(&spec.key, former);
        let early = Duration::from_nanos(until.saturating_sub(self.now));
        self.ensure("age", free, || {
            format!("{token} began {early:?} before the name that {former} kept was free")
        });
    }
}

impl World {
    /// Follows the names that stay taken, and checks that nobody gets one too early.
    pub(crate) fn follow_kept(&mut self, host: usize, step: &Step) {
        let Some(key) = step.command.key() else {
            return;
        };
        if let (Command::Retire(retire), Ok(Reply::Released)) = (step.command, step.reply) {
            self.keep(host, retire);
        }
        let Some((lease, _)) = step.granted() else {
            return;
        };
        let Some(kept) = self.kept.remove(key) else {
            return;
        };
        let clock = &self.hosts[kept.process.0].clock;
        let (now, same) = (
            clock.at(self.now),
            self.process(kept.process.0) == kept.process,
        );
        let free = now >= kept.until || !same || self.checks.is_disturbed(key, kept.token);
        self.checks.saw("a name was free after its age");
        self.checks.ensure("age", free, || {
            let early = kept.until.since(now);
            format!("{lease} got {key:?} {early:?} before the name was free")
        });
    }

    /// Notes that somebody freed a name by force, which may have stayed taken.
    pub(crate) fn forget_kept(&mut self, step: &Step) {
        if let (Command::ForceRelease(force), Ok(Reply::Released)) = (step.command, step.reply) {
            self.checks.released.remove(&force.key);
            self.checks.forced.insert(force.key.clone(), self.now);
        }
    }

    fn keep(&mut self, host: usize, retire: &Retire) {
        let book = &self.hosts[host].book;
        let attempt = book.attempts.get(&retire.lease);
        let lock = attempt.and_then(|attempt| book.locks.get(&attempt.lock));
        let Some((spec, tenure)) =
            lock.and_then(|lock| Some((&lock.spec, lock.releasing.as_ref()?)))
        else {
            return;
        };
        let least = spec.at_least.unwrap_or_default();
        let kept = Kept {
            process: self.process(host),
            token: tenure.token,
            until: tenure.began + least,
        };
        if tenure.token == retire.token {
            self.checks.saw("kept a name");
            self.kept.insert(retire.key.clone(), kept);
        }
    }

    /// True if nobody holds the lock, and its name only stays taken.
    pub(crate) fn is_kept(&self, server: usize, key: &LockKey) -> bool {
        let stored = self.stored_at(server, key);
        stored.is_some_and(|(lease, _)| lease == Retire::NO_LEASE)
    }
}
