//! When each lock is inspected next. Locks that a page shows come first, but leave room for others.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use leasehold::Name;

/// Why a lock is inspected, the most important reason first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Rank {
    /// A page shows it.
    Shown,
    /// It is new, or may have changed.
    Changed,
    /// It was not inspected for some time.
    Old,
}

const RANKS: [Rank; 3] = [Rank::Shown, Rank::Changed, Rank::Old];

#[derive(Debug, Default)]
pub(crate) struct Schedule {
    timings: HashMap<Name, Timing>,
    /// The locks of each rank, in the order in which they are due.
    due: [BTreeSet<(Instant, Name)>; RANKS.len()],
}

#[derive(Debug, Default)]
struct Timing {
    /// When it is due; `None` while it is inspected.
    due: Option<(Instant, Rank)>,
    inspected: Option<Instant>,
    /// When it is due again, if it changed while it was inspected.
    again: Option<Instant>,
}

impl Schedule {
    pub(crate) fn has(&self, name: &Name) -> bool {
        self.timings.contains_key(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.timings.keys()
    }

    /// Makes a lock due at this time, if it is not being inspected.
    pub(crate) fn put(&mut self, name: &Name, at: Instant, rank: Rank) {
        let timing = self.timings.entry(name.clone()).or_default();
        if let Some((due, was)) = timing.due.replace((at, rank)) {
            self.due[was as usize].remove(&(due, name.clone()));
        }
        self.due[rank as usize].insert((at, name.clone()));
    }

    /// Makes a lock due at once, or as soon as the gap between two inspections allows: it may have changed, or a page
    /// shows it by now.
    pub(crate) fn hasten(&mut self, name: &Name, now: Instant, gap: Duration, rank: Rank) {
        let Some(timing) = self.timings.get_mut(name) else {
            return self.put(name, now, rank);
        };
        let at = timing
            .inspected
            .map_or(now, |inspected| (inspected + gap).max(now));
        match timing.due {
            None => timing.again = Some(timing.again.map_or(at, |again| again.min(at))),
            Some((due, was)) if due > at || was > rank => {
                self.put(name, due.min(at), was.min(rank));
            }
            Some(_) => {}
        }
    }

    /// Lowers the rank of a lock that no page shows any more.
    pub(crate) fn defer(&mut self, name: &Name) {
        let due = self.timings.get(name).and_then(|timing| timing.due);
        if let Some((due, Rank::Shown)) = due {
            self.put(name, due, Rank::Old);
        }
    }

    /// Takes up to this many locks that are due. Each counts as being inspected from now on.
    pub(crate) fn take(&mut self, now: Instant, most: usize) -> Vec<Name> {
        let due = self.due.each_ref().map(|set| {
            let due = set.iter().take_while(|(at, _)| *at <= now).take(most);
            due.cloned().collect::<Vec<_>>()
        });
        // Each rank leaves a quarter to each rank below it, as far as that needs it.
        let [_, changed, old] = due.each_ref().map(|due| due.len().min(most / 4));
        let mut left = most;
        let mut taken = Vec::new();
        for (rank, kept) in RANKS.into_iter().zip([changed + old, old, 0]) {
            let count = left - kept.min(left);
            for due in due[rank as usize].iter().take(count) {
                self.due[rank as usize].remove(due);
                taken.push(due.1.clone());
            }
            left = most - taken.len();
        }
        for name in &taken {
            if let Some(timing) = self.timings.get_mut(name) {
                *timing = Timing {
                    inspected: Some(now),
                    ..Timing::default()
                };
            }
        }
        taken
    }

    /// Notes that a lock was inspected, and when it is due next.
    pub(crate) fn done(&mut self, name: &Name, next: Instant, rank: Rank) {
        if let Some(timing) = self.timings.get_mut(name) {
            match timing.again.take() {
                Some(again) if again < next => self.put(name, again, rank.min(Rank::Changed)),
                _ => self.put(name, next, rank),
            }
        }
    }

    pub(crate) fn forget(&mut self, name: &Name) {
        let timing = self.timings.remove(name);
        if let Some((due, rank)) = timing.and_then(|timing| timing.due) {
            self.due[rank as usize].remove(&(due, name.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Duration = Duration::from_secs(1);

    fn name(at: usize) -> Name {
        Name::new(format!("n{at}")).expect("a valid name")
    }

    #[test]
    fn shown_locks_come_first_but_leave_room_for_others() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for at in 0..300 {
            schedule.put(&name(at), now, RANKS[at / 100]);
        }
        let taken = schedule.take(now, 40);
        let of = |rank: usize| {
            let names = (rank * 100..rank * 100 + 100).map(name);
            names.filter(|name| taken.contains(name)).count()
        };
        assert_eq!((of(0), of(1), of(2)), (20, 10, 10));
        assert_eq!(
            schedule.take(now, 1_000).len(),
            260,
            "nothing is taken twice"
        );
        assert!(schedule.take(now, 40).is_empty());
    }

    #[test]
    fn a_rank_may_use_what_the_others_do_not_need() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for at in 0..100 {
            schedule.put(&name(at), now, Rank::Old);
        }
        schedule.put(&name(100), now + GAP, Rank::Shown);
        assert_eq!(schedule.take(now, 40).len(), 40);
    }

    #[test]
    fn a_change_is_inspected_soon_but_not_all_the_time() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let one = name(1);
        schedule.put(&one, now, Rank::Old);
        assert_eq!(schedule.take(now, 1), std::slice::from_ref(&one));
        // It changes while it is inspected: what was found may be old.
        schedule.hasten(&one, now, GAP, Rank::Changed);
        schedule.done(&one, now + 10 * GAP, Rank::Old);
        assert!(schedule.take(now + GAP / 2, 1).is_empty());
        assert_eq!(schedule.take(now + GAP, 1), std::slice::from_ref(&one));
        schedule.done(&one, now + 10 * GAP, Rank::Old);
        assert!(schedule.take(now + 9 * GAP, 1).is_empty());
        schedule.hasten(&one, now + 9 * GAP, GAP, Rank::Changed);
        assert_eq!(schedule.take(now + 9 * GAP, 1), std::slice::from_ref(&one));
        schedule.forget(&one);
        schedule.done(&one, now, Rank::Old);
        assert!(schedule.take(now + 99 * GAP, 1).is_empty() && !schedule.has(&one));
    }
}
