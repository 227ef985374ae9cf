//! Keeps the last half hour, so that a page that loads can show it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use leasehold::Name;
use serde::Serialize;

use super::look::{Change, Kind};
use super::show::{Happened, millis};
use super::tally::Tally;

pub(super) const KEPT: Duration = Duration::from_secs(30 * 60);
/// Notes that are kept. Each has a name of up to 512 bytes and an owner of up to 128: at most 16 MB together.
const MOST_NOTES: usize = 20_000;
/// Events that a page gets when it loads.
const MOST_EVENTS: usize = 300;

/// A change of a lock, or of the length of its line.
#[derive(Debug)]
struct Note {
    name: Name,
    at: Instant,
    waiting: u32,
    change: Option<Change>,
}

/// The counts of acquisitions, handoffs and losses at a moment.
#[derive(Debug)]
struct Sample {
    at: Instant,
    counts: [u64; 3],
}

#[derive(Default, Debug)]
pub(super) struct Past {
    notes: VecDeque<Note>,
    samples: VecDeque<Sample>,
}

/// The past of all locks. Times are in milliseconds before now.
#[derive(Serialize)]
pub(super) struct Recent<'a> {
    /// How long ago, acquisitions, handoffs, losses.
    samples: Vec<[u64; 4]>,
    /// The newest come last.
    events: Vec<Happened<'a>>,
}

/// The past of one lock.
#[derive(Serialize)]
pub(super) struct History<'a> {
    events: Vec<Happened<'a>>,
    /// How long ago the line had which length from then on.
    lengths: Vec<(u64, u32)>,
}

impl Past {
    pub(super) fn note(&mut self, name: &Name, at: Instant, waiting: u32, change: Option<Change>) {
        let name = name.clone();
        self.notes.push_back(Note {
            name,
            at,
            waiting,
            change,
        });
        while self.notes.len() > MOST_NOTES || is_over(self.notes.front().map(|note| note.at), at) {
            self.notes.pop_front();
        }
    }

    pub(super) fn sample(&mut self, at: Instant, tally: &Tally) {
        let ends = Kind::ENDS.into_iter().zip(tally.ends);
        let losses = ends
            .filter(|(kind, _)| kind.is_loss())
            .map(|(_, count)| count);
        let counts = [tally.acquired, tally.handoffs, losses.sum()];
        self.samples.push_back(Sample { at, counts });
        while is_over(self.samples.front().map(|sample| sample.at), at) {
            self.samples.pop_front();
        }
    }

    pub(super) fn recent(&self, now: Instant) -> Recent<'_> {
        let changes = self.notes.iter().filter_map(|note| happened(note, now));
        let skipped = changes.clone().count().saturating_sub(MOST_EVENTS);
        let samples = self.samples.iter().map(
            |Sample {
                 at,
                 counts: [a, h, l],
             }| {
                let ago = millis(now.saturating_duration_since(*at));
                [ago, *a, *h, *l]
            },
        );
        Recent {
            samples: samples.collect(),
            events: changes.skip(skipped).collect(),
        }
    }

    pub(super) fn of(&self, name: &Name, now: Instant) -> History<'_> {
        let notes = self.notes.iter().filter(|note| note.name == *name);
        let ago = |note: &Note| millis(now.saturating_duration_since(note.at));
        History {
            events: notes
                .clone()
                .filter_map(|note| happened(note, now))
                .collect(),
            lengths: notes.map(|note| (ago(note), note.waiting)).collect(),
        }
    }
}

fn is_over(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) > KEPT)
}

fn happened(note: &Note, now: Instant) -> Option<Happened<'_>> {
    let change = note.change.as_ref()?;
    Some(Happened::new(&note.name, change, now, note.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_bounded_in_time_and_number() {
        let (mut past, start) = (Past::default(), Instant::now());
        let name = Name::new("a").expect("a valid name");
        for at in 0..40 * 60 {
            let at = start + Duration::from_secs(at);
            past.note(&name, at, 1, None);
            past.sample(at, &Tally::default());
        }
        let kept = usize::try_from(KEPT.as_secs()).expect("a small number") + 1;
        assert_eq!((past.notes.len(), past.samples.len()), (kept, kept));
        for _ in 0..=MOST_NOTES {
            past.note(&name, start + Duration::from_secs(40 * 60), 1, None);
        }
        assert_eq!(past.notes.len(), MOST_NOTES);
    }
}
