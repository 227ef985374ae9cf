//! The repository's own judge of a round.

use std::collections::HashMap;

use crate::fault::Injected;
use crate::history::{Entry, Event, Kind, Outcome};
use crate::store::Served;
use crate::topology::Topology;
use crate::usage::Use;

/// How late a loss may be told beside the time in which the process did not run: timers are a few milliseconds late.
const LATE: i64 = 60_000_000;
/// How long after a failover the old primary may still serve, until it learns of it.
const TWO_PRIMARIES: u64 = 20_000_000_000;

/// A lease, as its client saw it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The worker.
    pub client: String,
    /// The lock.
    pub name: String,
    /// The token.
    pub token: u64,
    /// True for a reader.
    pub reads: bool,
    /// The last writer's token, where there are readers and writers.
    pub generation: Option<u64>,
    /// When the acquisition was called.
    pub call: u64,
    /// When it returned.
    pub back: u64,
    /// When it last said that it was valid; the time of `back` if it never did.
    pub valid: u64,
    /// True if its loss was told.
    pub lost: bool,
}

/// The material of a round.
#[derive(Clone, Debug)]
pub struct Round {
    /// The deployment.
    pub topology: Topology,
    /// The use of the names.
    pub usage: Use,
    /// The history, in order.
    pub entries: Vec<Entry>,
    /// The requests to the guarded store, in its order.
    pub served: Vec<Served>,
    /// The faults.
    pub faults: Vec<Injected>,
}

/// The verdict on a round.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The violations, each in a sentence.
    pub violations: Vec<String>,
    /// Pairs of leases that were valid at one time after a fault that ends exclusion.
    pub excused: u64,
    /// Writes that the store accepted although it had seen a later token. Only a store without a guard does that.
    pub stale_writes: u64,
}

impl Round {
    /// Returns the leases of the history, in the order in which they were granted.
    pub fn leases(&self) -> Vec<Lease> {
        let mut calls = HashMap::new();
        let mut leases: Vec<Lease> = Vec::new();
        let mut places = HashMap::new();
        for entry in &self.entries {
            let key = (entry.client.as_str(), entry.op);
            match (entry.event, entry.kind, entry.token) {
                (Event::Call, Some(Kind::Acquire), _) => {
                    calls.insert(key, entry.at);
                }
                (Event::Return, Some(Kind::Acquire), Some(token))
                    if entry.outcome == Some(Outcome::Ok) =>
                {
                    places.insert(
                        (entry.name.as_str(), entry.client.as_str(), token),
                        leases.len(),
                    );
                    leases.push(Lease {
                        client: entry.client.clone(),
                        name: entry.name.clone(),
                        token,
                        reads: entry.reads,
                        generation: entry.generation,
                        call: calls.get(&key).copied().unwrap_or(entry.at),
                        back: entry.at,
                        valid: entry.at,
                        lost: false,
                    });
                }
                (Event::Valid | Event::Lost, _, Some(token)) => {
                    let place = places.get(&(entry.name.as_str(), entry.client.as_str(), token));
                    if let Some(lease) = place.map(|place| &mut leases[*place]) {
                        if entry.event == Event::Valid {
                            lease.valid = lease.valid.max(entry.at);
                        } else {
                            lease.lost = true;
                        }
                    }
                }
                _ => {}
            }
        }
        leases
    }

    /// Judges the round.
    pub fn judge(&self) -> Verdict {
        let mut verdict = Verdict::default();
        let mut of_name: HashMap<String, Vec<Lease>> = HashMap::new();
        for lease in self.leases() {
            of_name.entry(lease.name.clone()).or_default().push(lease);
        }
        for leases in of_name.values() {
            tokens_grow(leases, &mut verdict);
            self.leases_exclude(leases, &mut verdict);
        }
        self.shared_names(&mut verdict);
        self.losses_are_in_time(&mut verdict);
        self.nothing_is_reacquired(&mut verdict);
        self.fences_hold(&mut verdict);
        verdict
    }

    /// I1: two leases never both say that they are valid, unless both are readers.
    fn leases_exclude(&self, leases: &[Lease], verdict: &mut Verdict) {
        let mut sorted: Vec<&Lease> = leases.iter().collect();
        sorted.sort_by_key(|lease| lease.back);
        // The leases that may still be valid.
        let mut open: Vec<&Lease> = Vec::new();
        for later in sorted {
            open.retain(|earlier| earlier.valid > later.back);
            for earlier in &open {
                if later.valid <= later.back || (earlier.reads && later.reads) {
                    // It never said that it was valid, or both are readers.
                } else if self.is_excused(earlier, later) {
                    verdict.excused += 1;
                } else {
                    verdict.violations.push(format!(
                        "I1: the leases {} of {} and {} of {} on {} were both valid at {}",
                        earlier.token,
                        earlier.client,
                        later.token,
                        later.client,
                        later.name,
                        later.back
                    ));
                }
            }
            open.push(later);
        }
    }

    fn is_excused(&self, one: &Lease, other: &Lease) -> bool {
        let (from, to) = (one.call.min(other.call), one.back.max(other.back));
        let slack = if self.topology.fails_over() {
            TWO_PRIMARIES
        } else {
            0
        };
        self.faults.iter().any(|fault| {
            fault.kind.ends_exclusion(self.topology)
                && fault.name.as_ref().is_none_or(|name| *name == one.name)
                && fault.at <= to
                && fault.until + slack >= from
        })
    }

    /// I4: a loss is told by the deadline, except for the time in which the process did not run.
    fn losses_are_in_time(&self, verdict: &mut Verdict) {
        for entry in &self.entries {
            let (Event::Lost, Some(late)) = (entry.event, entry.late) else {
                continue;
            };
            let unseen = i64::try_from(entry.unseen.unwrap_or(0)).unwrap_or(i64::MAX);
            if late > unseen.saturating_add(LATE) {
                verdict.violations.push(format!(
                    "I4: {} was told {} ms after the deadline that it had lost {} on {}",
                    entry.client,
                    late / 1_000_000,
                    entry.token.unwrap_or(0),
                    entry.name
                ));
            }
        }
    }

    /// I5: a lease that was lost does not become valid again.
    fn nothing_is_reacquired(&self, verdict: &mut Verdict) {
        let mut lost = HashMap::new();
        for entry in &self.entries {
            let key = (&entry.client, &entry.name, entry.token);
            match entry.event {
                Event::Lost => {
                    lost.insert(key, entry.at);
                }
                Event::Valid if lost.get(&key).is_some_and(|at| *at < entry.at) => {
                    verdict.violations.push(format!(
                        "I5: {} had lost {} on {}, and it was valid again",
                        entry.client,
                        entry.token.unwrap_or(0),
                        entry.name
                    ));
                }
                _ => {}
            }
        }
    }

    /// I3: the store accepts no token below one that it has accepted, and refuses no other.
    fn fences_hold(&self, verdict: &mut Verdict) {
        let mut fences: HashMap<&str, u64> = HashMap::new();
        for served in &self.served {
            let fence = fences.entry(&served.name).or_default();
            let is_stale = served.token < *fence;
            if is_stale && served.accepted {
                verdict.stale_writes += u64::from(served.writes);
                verdict.violations.push(format!(
                    "I3: the store accepted {} for {} after {fence}",
                    served.token, served.name
                ));
            } else if !is_stale && !served.accepted {
                verdict.violations.push(format!(
                    "I3: the store refused {} for {} after {fence}",
                    served.token, served.name
                ));
            }
            *fence = served.token.max(*fence);
        }
    }
}

/// I2: an acquisition that began after another had returned has a greater token.
fn tokens_grow(leases: &[Lease], verdict: &mut Verdict) {
    let (mut by_call, mut by_back): (Vec<&Lease>, Vec<&Lease>) =
        leases.iter().map(|lease| (lease, lease)).unzip();
    by_call.sort_by_key(|lease| lease.call);
    by_back.sort_by_key(|lease| lease.back);
    let mut greatest: Option<&Lease> = None;
    let mut returned = by_back.into_iter().peekable();
    for later in by_call {
        while let Some(earlier) = returned.next_if(|earlier| earlier.back < later.call) {
            if greatest.is_none_or(|greatest| greatest.token < earlier.token) {
                greatest = Some(earlier);
            }
        }
        if let Some(earlier) = greatest.filter(|earlier| earlier.token >= later.token) {
            verdict.violations.push(format!(
                "I2: {} got the token {} on {} after {} had got {}",
                later.client, later.token, later.name, earlier.client, earlier.token
            ));
        }
    }
}
