//! The pending operations of a server.

use crate::engine::ctx::{Origin, Serial};
use crate::engine::queue;
use crate::protocol::{Command, Durability, LockKey};
use crate::time::Timestamp;

/// The number of taken-back operations that may leave gaps in the queue.
const MOST_GAPS: usize = 64;

/// The pending operations: renewals first, because each has a lease to keep, and then all others in order of
/// arrival. The cost of each step does not depend on how many are pending.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    renewals: Queue,
    others: Queue,
    /// Operations that need copies. They leave in batches of their own, because the connection waits for the
    /// copies.
    durable: Queue,
}

#[derive(Debug)]
pub(in crate::engine) struct Queued {
    pub(in crate::engine) origin: Origin,
    pub(in crate::engine) command: Command,
    /// The copies that the operation needs before it counts.
    pub(in crate::engine) durability: Option<Durability>,
    /// The time after which no call waits for the operation.
    pub(in crate::engine) give_up: Timestamp,
}

impl Queued {
    /// The slot of the operation's keys in a cluster.
    pub(super) fn slot(&self) -> Option<u16> {
        self.command.key().map(LockKey::slot)
    }
}

/// Operations in the order of their attempts, which allows binary search, with a gap for each that was taken
/// back.
#[derive(Debug, Default)]
struct Queue {
    waiting: queue::Queue<(Serial, Option<Queued>)>,
    gaps: usize,
}

impl Outbox {
    /// Adds an operation, in the order of its attempt.
    pub(super) fn push(&mut self, out: Queued) {
        let queue = match out.command {
            _ if out.durability.is_some() => &mut self.durable,
            Command::Renew(_) => &mut self.renewals,
            _ => &mut self.others,
        };
        queue.push(out);
    }

    /// Removes and returns the operations that match.
    pub(super) fn take_all(&mut self, which: &dyn Fn(&Queued) -> bool) -> Vec<Queued> {
        let mut taken = self.renewals.take_all(which);
        taken.append(&mut self.others.take_all(which));
        taken.append(&mut self.durable.take_all(which));
        taken
    }

    /// Removes and returns the next operation with this durability, if the condition holds for it.
    pub(super) fn pop_if(
        &mut self,
        durability: Option<Durability>,
        condition: impl FnOnce(&Queued) -> bool,
    ) -> Option<Queued> {
        let queue = if durability.is_some() {
            &mut self.durable
        } else if self.renewals.len() > 0 {
            &mut self.renewals
        } else {
            &mut self.others
        };
        queue.pop_if(|queued| queued.durability == durability && condition(queued))
    }

    /// Takes an operation back. Returns `None` if it is not pending.
    pub(super) fn take_back(&mut self, attempt: Serial) -> Option<Queued> {
        let renewal = self.renewals.take_back(attempt);
        let other = renewal.or_else(|| self.others.take_back(attempt));
        other.or_else(|| self.durable.take_back(attempt))
    }

    /// Returns a pending operation.
    pub(super) fn find(&mut self, attempt: Serial) -> Option<&mut Queued> {
        let renewal = self.renewals.find(attempt);
        let other = renewal.or_else(|| self.others.find(attempt));
        other.or_else(|| self.durable.find(attempt))
    }

    pub(super) fn has(&self, attempt: Serial) -> bool {
        self.renewals.has(attempt) || self.others.has(attempt) || self.durable.has(attempt)
    }

    /// Returns the durability of the next operation that needs copies.
    pub(super) fn next_durability(&self) -> Option<Durability> {
        let mut durable = self.durable.waiting.iter();
        durable.find_map(|(_, out)| out.as_ref()?.durability)
    }

    /// The number of operations, without those that need copies.
    pub(super) fn len(&self) -> usize {
        self.renewals.len() + self.others.len()
    }

    /// Returns the key of a pending operation.
    pub(super) fn first_key(&self) -> Option<LockKey> {
        let mut keys = self.waiting().filter_map(|queued| queued.command.key());
        keys.next().cloned()
    }

    pub(super) fn origins(&self) -> impl Iterator<Item = Origin> {
        self.waiting().map(|queued| queued.origin)
    }

    fn waiting(&self) -> impl Iterator<Item = &Queued> {
        let waiting = self.renewals.waiting.iter();
        let waiting = waiting.chain(self.others.waiting.iter());
        let waiting = waiting.chain(self.durable.waiting.iter());
        waiting.filter_map(|(_, out)| out.as_ref())
    }
}

impl Queue {
    fn len(&self) -> usize {
        self.waiting.len() - self.gaps
    }

    fn pop_if(&mut self, condition: impl FnOnce(&Queued) -> bool) -> Option<Queued> {
        while let Some((_, None)) = self.waiting.front() {
            self.waiting.pop_front();
            self.gaps -= 1;
        }
        let (_, next) = self.waiting.front()?;
        let leaves = next.as_ref().is_some_and(condition);
        leaves.then(|| self.waiting.pop_front()?.1).flatten()
    }

    fn take_all(&mut self, which: &dyn Fn(&Queued) -> bool) -> Vec<Queued> {
        let waiting = self.waiting.iter_mut();
        let taken: Vec<_> = waiting
            .filter_map(|(_, out)| out.take_if(|out| which(out)))
            .collect();
        if !taken.is_empty() {
            self.waiting.retain(&|(_, out)| out.is_some());
            self.gaps = 0;
        }
        taken
    }

    fn push(&mut self, out: Queued) {
        let attempt = out.origin.attempt;
        self.waiting.push_back((attempt, Some(out)));
        // It is the newest, unless it was pending at another server before.
        let mut place = self.waiting.len() - 1;
        while place > 0 && self.waiting[place - 1].0 > attempt {
            self.waiting.swap(place - 1, place);
            place -= 1;
        }
    }

    fn take_back(&mut self, attempt: Serial) -> Option<Queued> {
        let place = self.place(attempt)?;
        let out = self.waiting[place].1.take()?;
        self.gaps += 1;
        if self.gaps > MOST_GAPS.max(self.waiting.len() / 2) {
            self.waiting.retain(&|(_, out)| out.is_some());
            self.gaps = 0;
        }
        Some(out)
    }

    fn find(&mut self, attempt: Serial) -> Option<&mut Queued> {
        let place = self.place(attempt)?;
        self.waiting[place].1.as_mut()
    }

    fn has(&self, attempt: Serial) -> bool {
        let place = self.place(attempt);
        place.is_some_and(|place| self.waiting[place].1.is_some())
    }

    fn place(&self, attempt: Serial) -> Option<usize> {
        self.waiting.binary_search_by_key(&attempt, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ctx::Whose;
    use crate::name::Name;
    use crate::protocol::Counter;
    use crate::protocol::{Inspect, LeaseId, LockKey, Renew};
    use crate::token::FencingToken;

    fn serial(number: u64) -> Serial {
        Serial::new(number).expect("serial numbers begin with 1")
    }

    fn out(number: u64, renews: bool) -> Queued {
        let attempt = serial(number);
        let name = Name::new("n").expect("a short name is valid");
        let key = LockKey::new("ns", &name).expect("a short namespace is valid");
        let command = if renews {
            Command::Renew(Renew {
                key,
                lease: LeaseId(1),
                token: FencingToken::MAX,
                counter: Counter::Dense,
                ttl: std::time::Duration::from_secs(1),
                floor: None,
            })
        } else {
            Command::Inspect(Inspect { key })
        };
        Queued {
            origin: Origin {
                whose: Whose::Contender(LeaseId(1).half()),
                attempt,
            },
            command,
            durability: None,
            give_up: Timestamp::NEVER,
        }
    }

    fn left(outbox: &mut Outbox) -> Vec<u64> {
        let all = std::iter::from_fn(|| outbox.pop_if(None, |_| true));
        all.map(|out| out.origin.attempt.get()).collect()
    }

    /// Catches renewals that wait behind a burst of acquisitions until their leases are lost.
    #[test]
    fn renewals_leave_first_and_the_rest_in_order() {
        let mut outbox = Outbox::default();
        for number in 1..=6 {
            outbox.push(out(number, number % 3 == 0));
        }
        assert_eq!(outbox.len(), 6);
        assert!(outbox.pop_if(None, |_| false).is_none());
        assert_eq!(left(&mut outbox), [3, 6, 1, 2, 4, 5]);
        assert_eq!(outbox.len(), 0);
    }

    /// Catches an operation that moved here from another server and is lost, or leaves after newer ones.
    #[test]
    fn an_older_operation_takes_its_place_among_the_newer() {
        let mut outbox = Outbox::default();
        for number in [4, 5, 9, 7, 1, 8] {
            outbox.push(out(number, false));
        }
        assert!(outbox.take_back(serial(7)).is_some() && outbox.find(serial(1)).is_some());
        assert_eq!(left(&mut outbox), [1, 4, 5, 8, 9]);
    }

    #[test]
    fn an_operation_that_was_taken_back_does_not_leave() {
        let mut outbox = Outbox::default();
        for number in 1..=6 {
            outbox.push(out(number, number == 2));
        }
        for number in [1, 2, 5] {
            assert!(outbox.take_back(serial(number)).is_some());
            assert!(outbox.take_back(serial(number)).is_none());
            assert!(outbox.find(serial(number)).is_none());
        }
        assert!(outbox.take_back(serial(7)).is_none() && outbox.find(serial(4)).is_some());
        assert_eq!(outbox.len(), 3);
        assert_eq!(outbox.origins().count(), 3);
        assert_eq!(left(&mut outbox), [3, 4, 6]);
    }

    /// Catches a search through all pending operations for each one that is given up, which would take
    /// minutes.
    #[test]
    fn a_burst_that_is_given_up_costs_little_and_leaves_nothing() {
        let mut outbox = Outbox::default();
        for number in 1..=200_000 {
            outbox.push(out(number, false));
        }
        for number in (1..=200_000).rev().chain([1]) {
            outbox.take_back(serial(number));
        }
        assert_eq!(outbox.len(), 0);
        assert!(outbox.others.waiting.len() <= 2 * MOST_GAPS);
        assert!(left(&mut outbox).is_empty());
    }
}
