//! What must have happened between two looks at a lock.

use std::time::{Duration, Instant, SystemTime};

use leasehold::{FencingToken, HolderInfo, Inspection};
use serde::Serialize;

/// A lease that nobody renews any more has less than this part of its time left at the end.
const LATE: f64 = 0.35;
/// By how much more is left than at the look before if a lease was renewed: looks are not exact.
const RENEWED: Duration = Duration::from_millis(100);
/// More than any tenure lasts; a token that says so is no clock's.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// A lock, as it was found.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) found: Inspection,
    pub(super) at: Instant,
    /// The most time that this tenure had left at any look.
    pub(super) fullest: Duration,
    /// How long before `at` the tenure began, if its token says so.
    pub(super) held: Option<Duration>,
    /// When this tenure was last seen to be renewed.
    pub(super) renewed: Option<Instant>,
    /// Since when nobody has it, or waits for it.
    pub(super) idle: Option<Instant>,
}

/// What happened to a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    Acquired,
    /// Its key went before its time.
    Released,
    /// Nobody renewed it, and then it was gone.
    Expired,
    /// Its owner has it again, with a new token.
    Superseded,
    /// It was released by force, here.
    Revoked,
    /// It is over; how, was not seen.
    Ended,
}

impl Kind {
    /// All ways in which a tenure ends.
    pub(super) const ENDS: [Self; 5] = [
        Self::Released,
        Self::Expired,
        Self::Superseded,
        Self::Revoked,
        Self::Ended,
    ];

    /// True if the holder lost the lock instead of giving it back.
    pub(super) fn is_loss(self) -> bool {
        matches!(self, Self::Expired | Self::Superseded | Self::Revoked)
    }
}

/// A change of a lock.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    pub(super) token: FencingToken,
    pub(super) owner: String,
    /// How long before the look it was.
    pub(super) ago: Duration,
    /// How long who got the lock had been seen in line.
    pub(super) waited: Option<Duration>,
}

impl Look {
    pub(crate) fn new(found: Inspection, at: Instant, before: Option<&Self>) -> Self {
        let same = before.filter(|before| before.token() == token(&found));
        let left = found
            .holder
            .as_ref()
            .map_or(Duration::ZERO, |holder| holder.remaining);
        let idle = found.holder.is_none() && found.waiting == 0;
        let idle = idle.then(|| same.and_then(|before| before.idle).unwrap_or(at));
        let fullest = same.map_or(left, |before| before.fullest.max(left));
        let renewed = same.and_then(|before| {
            if left <= before.left(at)? + RENEWED {
                return before.renewed;
            }
            let renewed = at.checked_sub(fullest.saturating_sub(left));
            Some(renewed.map_or(at, |renewed| renewed.max(before.at)))
        });
        Self {
            fullest,
            renewed,
            held: found.holder.as_ref().and_then(held),
            idle,
            found,
            at,
        }
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        token(&self.found)
    }

    /// What is left at this moment, as far as is known.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let holder = self.found.holder.as_ref()?;
        Some(
            holder
                .remaining
                .saturating_sub(now.saturating_duration_since(self.at)),
        )
    }

    /// What changed since the look before, the end of a tenure before the beginning of the next.
    pub(crate) fn changes(&self, before: &Self, revoked: Option<FencingToken>) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.token() == before.token() {
            return changes;
        }
        let began = self.began(before);
        if let Some(holder) = &before.found.holder {
            let kind = if revoked == Some(holder.token) {
                Kind::Revoked
            } else {
                self.end(before, holder)
            };
            changes.push(Change {
                kind,
                token: holder.token,
                owner: holder.owner.label().to_owned(),
                ago: began,
                waited: None,
            });
        }
        if let Some(holder) = &self.found.holder {
            changes.push(Change {
                kind: Kind::Acquired,
                token: holder.token,
                owner: holder.owner.label().to_owned(),
                ago: began,
                waited: self.waited(before, holder, began),
            });
        }
        changes
    }

    /// The acquisition that the first look at a lock shows, if it was since the watch began: because its name was
    /// not there before, or by its token.
    pub(super) fn first(&self, watched: Duration, is_new: bool) -> Option<Change> {
        let holder = self.found.holder.as_ref()?;
        let began = is_new || self.held.is_some_and(|held| held < watched);
        began.then(|| Change {
            kind: Kind::Acquired,
            token: holder.token,
            owner: holder.owner.label().to_owned(),
            ago: self.held.unwrap_or_default().min(watched),
            waited: None,
        })
    }

    /// How long ago the change was: since the look before, and as the new token says.
    fn began(&self, before: &Self) -> Duration {
        let most = self.at.saturating_duration_since(before.at);
        self.held.unwrap_or_default().min(most)
    }

    fn end(&self, before: &Self, holder: &HolderInfo) -> Kind {
        if let Some(next) = &self.found.holder
            && next.owner.is_reclaimable()
            && next.owner == holder.owner
        {
            return Kind::Superseded;
        }
        let over = before.left(self.at).is_none_or(|left| left.is_zero());
        let late = holder.remaining.as_secs_f64() < before.fullest.as_secs_f64() * LATE;
        match (over, late) {
            (false, _) => Kind::Released,
            (true, true) => Kind::Expired,
            (true, false) => Kind::Ended,
        }
    }

    fn waited(&self, before: &Self, holder: &HolderInfo, began: Duration) -> Option<Duration> {
        let mut line = before.found.line.iter();
        let waiter = line.find(|waiter| waiter.owner == holder.owner)?;
        let since = self.at.saturating_duration_since(before.at);
        Some(waiter.waited + since.saturating_sub(began))
    }
}

fn token(found: &Inspection) -> Option<FencingToken> {
    found.holder.as_ref().map(|holder| holder.token)
}

/// A token is the server's clock at the acquisition, in microseconds, unless it is a dense one or follows
/// one from a clock that was ahead. This machine's clock stands for the server's.
fn held(holder: &HolderInfo) -> Option<Duration> {
    let began = SystemTime::UNIX_EPOCH + Duration::from_micros(holder.token.get());
    let held = match SystemTime::now().duration_since(began) {
        Ok(held) => held,
        Err(ahead) if ahead.duration() < Duration::from_secs(5) => Duration::ZERO,
        Err(_) => return None,
    };
    (held < YEAR).then_some(held)
}

#[cfg(test)]
mod tests {
    use leasehold::Locker;

    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    /// A store in memory, and the moment of the first look.
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

        /// By a holder of this owner, seconds after the first look, with so many left of the time to live.
        async fn held(&self, owner: &str, after: u64, left: u64, before: Option<&Look>) -> Look {
            let lock = self.locker.lock("a").expect("a valid name").ttl(TTL);
            let lease = lock.owner(owner).acquire().await.expect("it is free");
            let mut found = self.locker.inspect("a").await.expect("it replies");
            lease.release().await.expect("it is held");
            let holder = found.holder.as_mut().expect("it is held");
            holder.remaining = Duration::from_secs(left);
            self.look(found, after, before)
        }

        async fn free(&self, after: u64, before: Option<&Look>) -> Look {
            let found = self.locker.inspect("a").await.expect("it replies");
            self.look(found, after, before)
        }

        /// The same holder as before.
        fn still(&self, before: &Look, after: u64, left: u64) -> Look {
            let mut found = before.found.clone();
            found.holder.as_mut().expect("it is held").remaining = Duration::from_secs(left);
            self.look(found, after, Some(before))
        }

        fn look(&self, found: Inspection, after: u64, before: Option<&Look>) -> Look {
            Look::new(found, self.start + Duration::from_secs(after), before)
        }
    }

    fn kinds(look: &Look, before: &Look, revoked: Option<FencingToken>) -> Vec<Kind> {
        let changes = look.changes(before, revoked);
        changes.iter().map(|change| change.kind).collect()
    }

    #[tokio::test]
    async fn what_goes_before_its_time_was_released() {
        let world = World::new();
        let held = world.held("a", 0, 30, None).await;
        let renewed = world.still(&held, 10, 30);
        assert_eq!(kinds(&renewed, &held, None), [], "a renewal is no change");
        assert_eq!((held.renewed, renewed.renewed), (None, Some(renewed.at)));
        let later = world.still(&renewed, 14, 26);
        assert_eq!(later.renewed, renewed.renewed);
        let again = world.still(&later, 24, 26);
        let ago = again.renewed.map(|at| again.at.duration_since(at));
        assert_eq!(
            ago,
            Some(Duration::from_secs(4)),
            "by what is left of the most"
        );
        let free = world.free(39, Some(&renewed)).await;
        assert_eq!(kinds(&free, &renewed, None), [Kind::Released]);
        assert_eq!(kinds(&free, &renewed, renewed.token()), [Kind::Revoked]);
        assert_eq!(free.idle, Some(free.at));
        let later = world.free(44, Some(&free)).await;
        assert_eq!(
            (later.idle, kinds(&later, &free, None)),
            (Some(free.at), vec![])
        );
    }

    #[tokio::test]
    async fn what_was_not_renewed_and_goes_in_its_time_expired() {
        let world = World::new();
        let held = world.held("a", 0, 30, None).await;
        let late = world.still(&held, 27, 3);
        let free = world.free(31, Some(&late)).await;
        assert_eq!(kinds(&free, &late, None), [Kind::Expired]);
        // If nobody looked when it was late, it may have been renewed.
        let free = world.free(31, Some(&held)).await;
        assert_eq!(kinds(&free, &held, None), [Kind::Ended]);
    }

    #[tokio::test]
    async fn the_next_one_is_seen_to_have_it() {
        let world = World::new();
        let one = world.held("one", 0, 30, None).await;
        let two = world.held("two", 5, 30, Some(&one)).await;
        assert_eq!(kinds(&two, &one, None), [Kind::Released, Kind::Acquired]);
        let again = world.held("two", 9, 30, Some(&two)).await;
        assert_eq!(
            kinds(&again, &two, None),
            [Kind::Superseded, Kind::Acquired]
        );
        let changes = again.changes(&two, None);
        assert!(
            changes
                .iter()
                .all(|change| change.owner == "two" && change.waited.is_none())
        );
    }
}
