//! The judge of shared names: capacity, generations, and the end of leases that the server has forgotten.
//!
//! Each slot is a resource with leases, tokens and a fence of its own, which [`checks`](crate::checks) judges like a
//! lock.

use std::collections::HashMap;

use crate::checks::{Lease, Round, Verdict};
use crate::fault::{Fault, Injected};
use crate::usage::{CAPACITY, Use};

/// A capacity that the store has from some time of its change on.
#[derive(Clone, Copy, Debug)]
struct Change {
    capacity: u32,
    at: u64,
    until: u64,
}

impl Round {
    /// Judges what holds for shared names alone.
    pub(crate) fn shared_names(&self, verdict: &mut Verdict) {
        if self.usage == Use::Locks {
            return;
        }
        let leases = self.leases();
        self.forgotten_leases_end(&leases, verdict);
        if self.usage == Use::Readers {
            self.generations_grow(&leases, verdict);
            return;
        }
        let mut of_name: HashMap<&str, Vec<&Lease>> = HashMap::new();
        for lease in &leases {
            of_name.entry(base(&lease.name)).or_default().push(lease);
        }
        for (name, leases) in of_name {
            self.capacity_is_kept(name, leases, verdict);
        }
    }

    fn forgets(&self) -> impl Iterator<Item = &Injected> {
        self.faults.iter().filter(|fault| fault.kind.forgets())
    }

    /// No more leases are valid at once than the capacity, and no slot from the capacity on is given out.
    ///
    /// 1. The last admitted of some leases that are valid at one time was admitted after all of them were called, and
    ///    before it returned.
    /// 2. At that moment the server held all of them, so their number is at most the capacity of that moment.
    /// 3. A server that forgot has forgotten the leases before. So it counts those that were called later.
    fn capacity_is_kept(&self, name: &str, mut leases: Vec<&Lease>, verdict: &mut Verdict) {
        let changes = self.changes(name);
        leases.sort_by_key(|lease| lease.back);
        let mut open: Vec<&Lease> = Vec::new();
        for last in leases {
            let most = most_within(&changes, last.call, last.back);
            if slot(&last.name).is_none_or(|slot| slot >= most) {
                verdict.violations.push(format!(
                    "capacity: {} got {} at {} with a capacity of {most}",
                    last.client, last.name, last.back
                ));
            }
            open.retain(|lease| lease.valid > last.back);
            if last.valid <= last.back {
                continue; // It never said that it was valid.
            }
            open.push(last);
            let forgot = self.forgets().filter(|fault| fault.at <= last.back);
            let forgot = forgot.map(|fault| fault.until).max().unwrap_or(0);
            let too_many = |since: u64| {
                let held = open.iter().filter(|lease| lease.call >= since);
                let (mut count, mut from) = (0, 0);
                for lease in held {
                    count += 1;
                    from = from.max(lease.call);
                }
                let most = most_within(&changes, from, last.back);
                (count > most).then_some((count, most))
            };
            if let Some((count, most)) = too_many(forgot) {
                verdict.violations.push(format!(
                    "capacity: {count} of {name} were held at {} with a capacity of {most}",
                    last.back
                ));
            } else if too_many(0).is_some() {
                verdict.excused += 1;
            }
        }
    }

    /// Returns the capacities of a semaphore in the order of their changes. A server that forgets has the capacity of the
    /// next client.
    fn changes(&self, name: &str) -> Vec<Change> {
        let of_name = |fault: &&Injected| {
            fault.kind.forgets()
                || fault.kind == Fault::Resize && fault.name.as_deref() == Some(name)
        };
        let changes = self.faults.iter().filter(of_name).map(|fault| Change {
            capacity: fault.capacity.unwrap_or(CAPACITY),
            at: fault.at,
            until: fault.until,
        });
        let first = Change {
            capacity: CAPACITY,
            at: 0,
            until: 0,
        };
        std::iter::once(first).chain(changes).collect()
    }

    /// I5: a lease that was acquired before the server forgot it ends at most its time to live later.
    fn forgotten_leases_end(&self, leases: &[Lease], verdict: &mut Verdict) {
        let ttl = u64::try_from(self.usage.ttl().as_nanos()).unwrap_or(u64::MAX);
        for fault in self.forgets() {
            let before = leases.iter().filter(|lease| lease.back < fault.at);
            for lease in before.filter(|lease| lease.valid > fault.until + ttl) {
                verdict.violations.push(format!(
                    "I5: the lease {} of {} on {} was valid {} ms after the server forgot it",
                    lease.token,
                    lease.client,
                    lease.name,
                    (lease.valid - fault.until) / 1_000_000
                ));
            }
        }
    }

    /// A reader that was called after another reader or a writer had returned knows no older writer, unless the server
    /// forgot the writer. No lease knows a writer after itself, and a writer knows itself.
    fn generations_grow(&self, leases: &[Lease], verdict: &mut Verdict) {
        for later in leases {
            let known = later.generation.unwrap_or(0);
            if known > later.token || (!later.reads && known != later.token) {
                verdict.violations.push(format!(
                    "generation: {} got {} with the token {}",
                    later.client, known, later.token
                ));
            }
            let forgot = self.forgets().filter(|fault| fault.at <= later.back);
            let forgot = forgot.map(|fault| fault.until).max().unwrap_or(0);
            let earlier = leases.iter().filter(|earlier| {
                earlier.name == later.name && earlier.back < later.call && earlier.call >= forgot
            });
            let greatest = earlier.max_by_key(|earlier| earlier.generation);
            if let Some(earlier) = greatest.filter(|earlier| earlier.generation > later.generation)
            {
                verdict.violations.push(format!(
                    "generation: {} got {known} after {} had got {}",
                    later.client,
                    earlier.client,
                    earlier.generation.unwrap_or(0)
                ));
            }
        }
    }
}

/// Returns the name of a slot's semaphore.
fn base(resource: &str) -> &str {
    resource.split_once('#').map_or(resource, |(name, _)| name)
}

fn slot(resource: &str) -> Option<u32> {
    resource.split_once('#')?.1.parse().ok()
}

/// Returns the greatest capacity that was in force at some time of this stretch.
fn most_within(changes: &[Change], from: u64, to: u64) -> u32 {
    // The last change that was complete before, and all after it.
    let first = changes.iter().rposition(|change| change.until < from);
    let since = &changes[first.unwrap_or(0)..];
    let within = since.iter().filter(|change| change.at <= to);
    // A change without an answer may come at any time.
    let open = changes
        .iter()
        .filter(|change| change.until == u64::MAX && change.at <= to);
    within
        .chain(open)
        .map(|change| change.capacity)
        .max()
        .unwrap_or(0)
}
