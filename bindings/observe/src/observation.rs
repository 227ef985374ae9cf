//! Infers what happened to a lock between two inspections.

use std::time::{Duration, Instant, SystemTime};

use leasehold::{FencingToken, HolderInfo, Inspection};
use serde::Serialize;

/// The share of a lease's time that is still left at its last renewal at the latest. A lease with less was not renewed.
const UNRENEWED_SHARE: f64 = 0.35;
/// A lease was renewed if its remaining time is greater by this than expected. Inspections are not exact.
const RENEWED: Duration = Duration::from_millis(100);
/// Longer than any tenure. A token that implies more is not a clock's.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// A lock as an inspection found it, with what earlier inspections say of the same tenure.
#[derive(Debug)]
#[non_exhaustive]
pub struct Observation {
    /// The result of the inspection.
    pub inspection: Inspection,
    /// When it was found.
    pub at: Instant,
    /// The longest remaining time of this tenure at any inspection.
    pub max_remaining: Duration,
    /// How long before [`at`](Self::at) the tenure began, if its token tells.
    pub held_for: Option<Duration>,
    /// When this tenure was last seen to be renewed.
    pub renewed_at: Option<Instant>,
    /// How long the turn lasted that completed the job's last tick, if its token tells when it began.
    pub ran_for: Option<Duration>,
    /// When the lock was first seen without holders and waiters, if it has none.
    pub idle_since: Option<Instant>,
}

/// A change of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// A tenure began.
    Acquired,
    /// The lock's key was gone before its time.
    Released,
    /// Nobody renewed the lease, and then its time was over.
    Expired,
    /// The lock's owner took it over with a new token.
    Superseded,
    /// The observer itself released the lock by force.
    Revoked,
    /// The tenure is over, in an unknown way.
    Ended,
}

impl ChangeKind {
    /// All ways in which a tenure ends.
    pub const ENDS: [Self; 5] = [
        Self::Released,
        Self::Expired,
        Self::Superseded,
        Self::Revoked,
        Self::Ended,
    ];

    /// Returns `true` if the holder lost the lock instead of releasing it.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Expired | Self::Superseded | Self::Revoked)
    }
}

/// The beginning or the end of a tenure.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Change {
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The token of the tenure.
    pub token: FencingToken,
    /// The label of the holder.
    pub owner: String,
    /// How long before the observation it happened.
    pub ago: Duration,
    /// How long the new holder had waited, if it was seen in line.
    pub waited: Option<Duration>,
}

/// Returns `true` if somebody holds the lock, or a part of a shared name.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), leasehold::Error> {
/// let locker = leasehold::Locker::in_memory();
/// let permit = locker.semaphore("licenses", 3)?.acquire().await?;
/// let found = locker.inspect("licenses").await?;
/// assert!(found.holder.is_none() && leasehold_observe::is_held(&found));
/// # drop(permit);
/// # Ok(()) }
/// ```
pub fn is_held(inspection: &Inspection) -> bool {
    let shared = inspection.shared.as_ref();
    inspection.holder.is_some() || shared.is_some_and(|shared| shared.held > 0)
}

impl Observation {
    /// Takes in an inspection, and the observation before, if there is one.
    pub fn new(inspection: Inspection, at: Instant, before: Option<&Self>) -> Self {
        let same = before.filter(|before| before.token() == token(&inspection));
        let holder = inspection.holder.as_ref();
        let remaining = holder.map_or(Duration::ZERO, |holder| holder.remaining);
        let is_idle = !is_held(&inspection) && inspection.waiting == 0;
        let idle_since = is_idle.then(|| same.and_then(|before| before.idle_since).unwrap_or(at));
        let max_remaining = same.map_or(remaining, |before| before.max_remaining.max(remaining));
        let renewed_at = same.and_then(|before| {
            if remaining <= before.remaining(at)? + RENEWED {
                return before.renewed_at;
            }
            let renewed = at.checked_sub(max_remaining.saturating_sub(remaining));
            Some(renewed.map_or(at, |renewed| renewed.max(before.at)))
        });
        Self {
            max_remaining,
            renewed_at,
            held_for: holder.and_then(held_for),
            ran_for: ran_for(&inspection),
            idle_since,
            inspection,
            at,
        }
    }

    /// Returns the token of the tenure, if the lock is held.
    pub fn token(&self) -> Option<FencingToken> {
        token(&self.inspection)
    }

    /// Returns the remaining time of the lease at a later moment, if nobody has renewed it since.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        let holder = self.inspection.holder.as_ref()?;
        let since = now.saturating_duration_since(self.at);
        Some(holder.remaining.saturating_sub(since))
    }

    /// Returns what changed since the observation before: the end of a tenure, and then the beginning of the next.
    /// `revoked` is the tenure that the observer itself has released by force, if any.
    pub fn changes(&self, before: &Self, revoked: Option<FencingToken>) -> Vec<Change> {
        if self.token() == before.token() {
            return Vec::new();
        }
        let ago = self.changed_ago(before);
        let change = |kind, holder: &HolderInfo, waited| Change {
            kind,
            token: holder.token,
            owner: holder.owner.label().to_owned(),
            ago,
            waited,
        };
        let ended = before.inspection.holder.as_ref().map(|holder| {
            let is_revoked = revoked == Some(holder.token);
            let kind = if is_revoked {
                ChangeKind::Revoked
            } else {
                self.end(before, holder)
            };
            change(kind, holder, None)
        });
        let began = self.inspection.holder.as_ref().map(|holder| {
            let waited = self.waited(before, holder, ago);
            change(ChangeKind::Acquired, holder, waited)
        });
        ended.into_iter().chain(began).collect()
    }

    /// Returns the acquisition that the first observation of a lock shows, if it happened within `watched`, the time
    /// since the observer began: because the name is new, or by the token.
    pub fn first_change(&self, watched: Duration, is_new: bool) -> Option<Change> {
        let holder = self.inspection.holder.as_ref()?;
        let began = is_new || self.held_for.is_some_and(|held| held < watched);
        began.then(|| Change {
            kind: ChangeKind::Acquired,
            token: holder.token,
            owner: holder.owner.label().to_owned(),
            ago: self.held_for.unwrap_or_default().min(watched),
            waited: None,
        })
    }

    /// Returns how long ago the change was: since the observation before, and as the new token says.
    fn changed_ago(&self, before: &Self) -> Duration {
        self.held_for.unwrap_or_default().min(self.since(before))
    }

    /// Returns how long ago the observation before was, by this machine's clock.
    fn since(&self, before: &Self) -> Duration {
        self.at.saturating_duration_since(before.at)
    }

    fn end(&self, before: &Self, holder: &HolderInfo) -> ChangeKind {
        if let Some(next) = &self.inspection.holder
            && next.owner.is_reclaimable()
            && next.owner == holder.owner
        {
            return ChangeKind::Superseded;
        }
        // An answer that came late is older than its observation. The server's clock knows by how much, unless it jumped.
        let by_server = self
            .inspection
            .server_time
            .saturating_sub(before.inspection.server_time);
        let since = self.since(before).max(Duration::from_millis(by_server));
        let is_over = holder.remaining <= since;
        let renewed_by = before.max_remaining.as_secs_f64() * UNRENEWED_SHARE;
        match (is_over, holder.remaining.as_secs_f64() < renewed_by) {
            (false, _) => ChangeKind::Released,
            (true, true) => ChangeKind::Expired,
            (true, false) => ChangeKind::Ended,
        }
    }

    fn waited(&self, before: &Self, holder: &HolderInfo, ago: Duration) -> Option<Duration> {
        let mut line = before.inspection.line.iter();
        let waiter = line.find(|waiter| waiter.owner == holder.owner)?;
        Some(waiter.waited + self.since(before).saturating_sub(ago))
    }
}

fn token(inspection: &Inspection) -> Option<FencingToken> {
    inspection.holder.as_ref().map(|holder| holder.token)
}

/// Returns how long ago a tenure began, by its token: the server's clock at the acquisition, in microseconds. A dense
/// token does not tell, and neither does a token that follows one from a clock that was ahead. This machine's clock
/// stands for the server's.
fn held_for(holder: &HolderInfo) -> Option<Duration> {
    let began = SystemTime::UNIX_EPOCH + Duration::from_micros(holder.token.get());
    let held = match SystemTime::now().duration_since(began) {
        Ok(held) => held,
        Err(ahead) if ahead.duration() < Duration::from_secs(5) => Duration::ZERO,
        Err(_) => return None,
    };
    (held < YEAR).then_some(held)
}

/// Returns how long the last completed turn of a job lasted, by its token: see [`held_for`]. Both times are the
/// server's.
fn ran_for(inspection: &Inspection) -> Option<Duration> {
    let done = inspection.job.as_ref()?.completed.as_ref()?;
    // The store keeps the time of the completion in whole milliseconds, so all others are rounded down, too.
    let ago = u64::try_from(done.ago.as_millis()).ok()?;
    let ended = inspection.server_time.checked_sub(ago)?;
    let ran = ended.checked_sub(done.token.get() / 1_000)?;
    Some(Duration::from_millis(ran)).filter(|ran| *ran < YEAR)
}

#[cfg(test)]
mod tests {
    use leasehold::{Claimed, Locker};

    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    /// An in-memory store, and the moment of the first observation.
    struct World {
        locker: Locker,
        start: Instant,
    }

    impl World {
        fn new() -> Self {
            Self {
                locker: Locker::in_memory(),
                start: Instant::now(),
            }
        }

        /// Observes a holder of this owner so many seconds after the start, with so many left of its time to live.
        async fn held(
            &self,
            owner: &str,
            after: u64,
            left: u64,
            before: Option<&Observation>,
        ) -> Observation {
            let lock = self.locker.lock("a").expect("a valid name").ttl(TTL);
            let lease = lock.owner(owner).acquire().await.expect("it is free");
            let mut found = self.locker.inspect("a").await.expect("it replies");
            lease.release().await.expect("it is held");
            let holder = found.holder.as_mut().expect("it is held");
            holder.remaining = Duration::from_secs(left);
            self.observe(found, after, before)
        }

        async fn free(&self, after: u64, before: Option<&Observation>) -> Observation {
            let found = self.locker.inspect("a").await.expect("it replies");
            self.observe(found, after, before)
        }

        /// Observes the same holder as before.
        fn still(&self, before: &Observation, after: u64, left: u64) -> Observation {
            let mut found = before.inspection.clone();
            found.holder.as_mut().expect("it is held").remaining = Duration::from_secs(left);
            self.observe(found, after, Some(before))
        }

        fn observe(
            &self,
            inspection: Inspection,
            after: u64,
            before: Option<&Observation>,
        ) -> Observation {
            Observation::new(inspection, self.start + Duration::from_secs(after), before)
        }
    }

    fn kinds(
        now: &Observation,
        before: &Observation,
        revoked: Option<FencingToken>,
    ) -> Vec<ChangeKind> {
        let changes = now.changes(before, revoked);
        changes.iter().map(|change| change.kind).collect()
    }

    #[tokio::test]
    async fn a_lock_that_is_gone_before_its_time_was_released() {
        let world = World::new();
        let held = world.held("a", 0, 30, None).await;
        let renewed = world.still(&held, 10, 30);
        assert_eq!(kinds(&renewed, &held, None), [], "a renewal is no change");
        assert_eq!(
            (held.renewed_at, renewed.renewed_at),
            (None, Some(renewed.at))
        );
        let later = world.still(&renewed, 14, 26);
        assert_eq!(later.renewed_at, renewed.renewed_at);
        let again = world.still(&later, 24, 26);
        let ago = again.renewed_at.map(|at| again.at.duration_since(at));
        assert_eq!(
            ago,
            Some(Duration::from_secs(4)),
            "by what is left of the most"
        );
        let free = world.free(39, Some(&renewed)).await;
        assert_eq!(kinds(&free, &renewed, None), [ChangeKind::Released]);
        assert_eq!(
            kinds(&free, &renewed, renewed.token()),
            [ChangeKind::Revoked]
        );
        assert_eq!(free.idle_since, Some(free.at));
        let later = world.free(44, Some(&free)).await;
        assert_eq!(
            (later.idle_since, kinds(&later, &free, None)),
            (Some(free.at), vec![])
        );
    }

    #[tokio::test]
    async fn a_lease_that_nobody_renewed_expired_at_its_end() {
        let world = World::new();
        let held = world.held("a", 0, 30, None).await;
        let late = world.still(&held, 27, 3);
        let free = world.free(31, Some(&late)).await;
        assert_eq!(kinds(&free, &late, None), [ChangeKind::Expired]);
        // Without an observation shortly before its end, it may have been renewed.
        let free = world.free(31, Some(&held)).await;
        assert_eq!(kinds(&free, &held, None), [ChangeKind::Ended]);
        // The answer before came a second late, so by this machine's clock the lease would have had a second left.
        let mut found = free.inspection.clone();
        found.server_time = late.inspection.server_time + 3_000;
        let free = world.observe(found, 29, Some(&late));
        assert_eq!(kinds(&free, &late, None), [ChangeKind::Expired]);
    }

    /// Catches a duration from the moment of the observation, or from a token that is no time.
    #[tokio::test]
    async fn the_last_turn_of_a_job_tells_how_long_it_lasted() {
        let world = World::new();
        let job = world.locker.job("a").expect("a valid name");
        let Ok(Claimed::Turn(turn)) = job.claim(7).await else {
            panic!("nobody has it");
        };
        let running = world.free(0, None).await;
        assert_eq!(running.ran_for, None, "it is not over");
        let micros = turn.token().get();
        turn.done().await.expect("it is held");
        let mut found = world.locker.inspect("a").await.expect("it replies");
        found.server_time = micros / 1_000 + 60_000;
        let done = found.job.as_mut().and_then(|job| job.completed.as_mut());
        let done = done.expect("it is completed");
        done.ago = Duration::from_secs(18);
        let seen = world.observe(found.clone(), 0, None);
        assert_eq!(seen.ran_for, Some(Duration::from_secs(42)));
        let done = found.job.as_mut().and_then(|job| job.completed.as_mut());
        done.expect("it is completed").token = FencingToken::new(9).expect("a token");
        let dense = world.observe(found, 0, None);
        assert_eq!(dense.ran_for, None);
    }

    #[tokio::test]
    async fn the_next_holder_is_observed() {
        let world = World::new();
        let one = world.held("one", 0, 30, None).await;
        let two = world.held("two", 5, 30, Some(&one)).await;
        assert_eq!(
            kinds(&two, &one, None),
            [ChangeKind::Released, ChangeKind::Acquired]
        );
        let again = world.held("two", 9, 30, Some(&two)).await;
        assert_eq!(
            kinds(&again, &two, None),
            [ChangeKind::Superseded, ChangeKind::Acquired]
        );
        let changes = again.changes(&two, None);
        assert!(
            changes
                .iter()
                .all(|change| change.owner == "two" && change.waited.is_none())
        );
    }
}
