//! Which lock is to be looked at when. Those that somebody sees on a page come first, but not alone.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use leasehold::Name;

/// Why a lock is looked at, the most important first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Rank {
    /// Somebody sees it.
    Seen,
    /// It is new, or may have changed.
    Changed,
    /// It was not looked at for some time.
    Old,
}

const RANKS: [Rank; 3] = [Rank::Seen, Rank::Changed, Rank::Old];

#[derive(Debug, Default)]
pub(super) struct Agenda {
    entries: HashMap<Name, Entry>,
    /// By when they are due, of each rank.
    due: [BTreeSet<(Instant, Name)>; RANKS.len()],
}

#[derive(Debug, Default)]
struct Entry {
    /// When it is due; nothing while it is looked at.
    due: Option<(Instant, Rank)>,
    looked: Option<Instant>,
    /// That it has to be looked at again by then, though it is being looked at.
    again: Option<Instant>,
}

impl Agenda {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn has(&self, name: &Name) -> bool {
        self.entries.contains_key(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.entries.keys()
    }

    /// It is due then, if it is not being looked at.
    pub(super) fn put(&mut self, name: &Name, at: Instant, rank: Rank) {
        let entry = self.entries.entry(name.clone()).or_default();
        if let Some((due, was)) = entry.due.replace((at, rank)) {
            self.due[was as usize].remove(&(due, name.clone()));
        }
        self.due[rank as usize].insert((at, name.clone()));
    }

    /// It may have changed, or somebody sees it by now: it is due at once, or as soon as the gap between two
    /// looks allows.
    pub(super) fn hasten(&mut self, name: &Name, now: Instant, gap: Duration, rank: Rank) {
        let Some(entry) = self.entries.get_mut(name) else {
            return self.put(name, now, rank);
        };
        let at = entry.looked.map_or(now, |looked| (looked + gap).max(now));
        match entry.due {
            None => entry.again = Some(entry.again.map_or(at, |again| again.min(at))),
            Some((due, was)) if due > at || was > rank => {
                self.put(name, due.min(at), was.min(rank));
            }
            Some(_) => {}
        }
    }

    /// Nobody sees it any more.
    pub(super) fn defer(&mut self, name: &Name) {
        let due = self.entries.get(name).and_then(|entry| entry.due);
        if let Some((due, Rank::Seen)) = due {
            self.put(name, due, Rank::Old);
        }
    }

    /// What is due, up to this many. Each is being looked at from now on.
    pub(super) fn take(&mut self, now: Instant, most: usize) -> Vec<Name> {
        let due = self.due.each_ref().map(|set| {
            let due = set.iter().take_while(|(at, _)| *at <= now).take(most);
            due.cloned().collect::<Vec<_>>()
        });
        // Each rank has to leave a quarter to each of those below it, as far as they need it.
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
            if let Some(entry) = self.entries.get_mut(name) {
                let looked = Some(now);
                *entry = Entry {
                    looked,
                    ..Entry::default()
                };
            }
        }
        taken
    }

    /// It was looked at.
    pub(super) fn done(&mut self, name: &Name, next: Instant, rank: Rank) {
        if let Some(entry) = self.entries.get_mut(name) {
            match entry.again.take() {
                Some(again) if again < next => self.put(name, again, rank.min(Rank::Changed)),
                _ => self.put(name, next, rank),
            }
        }
    }

    pub(super) fn forget(&mut self, name: &Name) {
        let entry = self.entries.remove(name);
        if let Some((due, rank)) = entry.and_then(|entry| entry.due) {
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
    fn what_is_seen_comes_first_but_not_alone() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        for at in 0..300 {
            agenda.put(&name(at), now, RANKS[at / 100]);
        }
        let taken = agenda.take(now, 40);
        let of = |rank: usize| {
            let names = (rank * 100..rank * 100 + 100).map(name);
            names.filter(|name| taken.contains(name)).count()
        };
        assert_eq!((of(0), of(1), of(2)), (20, 10, 10));
        assert_eq!(agenda.take(now, 1_000).len(), 260, "nothing is taken twice");
        assert!(agenda.take(now, 40).is_empty());
    }

    #[test]
    fn a_rank_may_have_what_the_others_do_not_need() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        for at in 0..100 {
            agenda.put(&name(at), now, Rank::Old);
        }
        agenda.put(&name(100), now + GAP, Rank::Seen);
        assert_eq!(agenda.take(now, 40).len(), 40);
    }

    #[test]
    fn a_change_is_looked_at_soon_but_not_all_the_time() {
        let (mut agenda, now) = (Agenda::default(), Instant::now());
        let one = name(1);
        agenda.put(&one, now, Rank::Old);
        assert_eq!(agenda.take(now, 1), std::slice::from_ref(&one));
        // It changes while it is looked at: what was found may be old.
        agenda.hasten(&one, now, GAP, Rank::Changed);
        agenda.done(&one, now + 10 * GAP, Rank::Old);
        assert!(agenda.take(now + GAP / 2, 1).is_empty());
        assert_eq!(agenda.take(now + GAP, 1), std::slice::from_ref(&one));
        agenda.done(&one, now + 10 * GAP, Rank::Old);
        assert!(agenda.take(now + 9 * GAP, 1).is_empty());
        agenda.hasten(&one, now + 9 * GAP, GAP, Rank::Changed);
        assert_eq!(agenda.take(now + 9 * GAP, 1), std::slice::from_ref(&one));
        agenda.forget(&one);
        agenda.done(&one, now, Rank::Old);
        assert!(agenda.take(now + 99 * GAP, 1).is_empty() && !agenda.has(&one));
    }
}
