//! Hands events to readers. Each reads at its own pace and uses bounded memory.

#[cfg(test)]
mod tests;

use std::task::Poll;

use super::queue::Queue;
use super::table::{Id, Table};
use super::{Engine, LockId};
use crate::event::LeaseEvent;
use crate::protocol::{HalfId, LeaseId};
use crate::time::Timestamp;

/// The most unread events of a reader, besides one for each lease that was held meanwhile.
const CAPACITY: usize = 1_024;

/// The lease ID of queued events that belong to no lease.
const NO_LEASE: LeaseId = LeaseId(0);

/// One stream of events. The host chooses the number and never reuses it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReaderId(pub u64);

impl Id for ReaderId {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

/// The readers of events, each with a bounded queue. `W` is the type that wakes a reader.
///
/// A new reader first gets the current state. Unread `Renewed` events of a lease merge into the newest. The
/// limit of unread events is 1,024, plus one for each lease that was held since the reader last caught up. A
/// reader beyond the limit gets `Lagged` in place of the unread events, and then the current state. A queue
/// always has room for one `Lost` for each of these leases. So a reader that keeps up misses none, however
/// many leases are lost at once.
///
/// ```
/// use std::task::Poll;
/// use leasehold_engine::engine::{Engine, Hub, LockId, Output, ReaderId, Settings};
/// use leasehold_engine::protocol::{ClientId, LeaseId};
/// use leasehold_engine::time::Timestamp;
/// use leasehold_engine::{FencingToken, LeaseEvent, Name};
///
/// let (engine, now) = (Engine::new(Settings::new(ClientId(1))), Timestamp::from_nanos(0));
/// let mut hub = Hub::<&str>::default();
/// let (reader, lock) = (ReaderId(1), LockId(1));
/// hub.subscribe(reader, Some(lock), &engine, now);
/// assert!(hub.poll(reader, &engine, now, &mut Some("wake me")).is_pending());
/// let event = LeaseEvent::Released { name: Name::new("n")?, token: FencingToken::new(1)? };
/// assert_eq!(hub.publish(lock, LeaseId(7), &event), ["wake me"]);
/// assert_eq!(hub.poll(reader, &engine, now, &mut None), Poll::Ready(Some(event)));
/// # Ok::<(), leasehold_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct Hub<W> {
    readers: Table<ReaderId, Reader<W>>,
    of_lock: Table<LockId, Vec<ReaderId>>,
    of_all: Vec<ReaderId>,
    ended: bool,
}

impl<W> Default for Hub<W> {
    fn default() -> Self {
        Self {
            readers: Table::default(),
            of_lock: Table::default(),
            of_all: Vec::new(),
            ended: false,
        }
    }
}

#[derive(Debug)]
struct Reader<W> {
    scope: Option<LockId>,
    queue: Queue<(HalfId, LeaseEvent)>,
    /// The position of the queue's first event among all events ever queued.
    first: u64,
    /// The position of each lease's unread `Renewed`, while that is the lease's newest event in the queue.
    renewed: Table<HalfId, u64>,
    missed: u64,
    /// The number of leases held after the queued events, and the greatest number since the reader caught up.
    held: usize,
    most_held: usize,
    ended: bool,
    waker: Option<W>,
}

impl<W> Hub<W> {
    /// Adds a reader of the events of one lock, or of all locks.
    pub fn subscribe(
        &mut self,
        id: ReaderId,
        scope: Option<LockId>,
        engine: &Engine,
        now: Timestamp,
    ) {
        match scope {
            Some(lock) => self.of_lock.get_or_insert_with(lock, Vec::new).push(id),
            None => self.of_all.push(id),
        }
        let mut reader = Reader {
            scope,
            queue: Queue::new(),
            first: 0,
            renewed: Table::default(),
            missed: 0,
            held: 0,
            most_held: 0,
            ended: self.ended,
            waker: None,
        };
        reader.queue_state(engine, now);
        self.readers.insert(id, reader);
    }

    /// Removes a reader. Returns its waker, because dropping a waker may run the program's code.
    pub fn unsubscribe(&mut self, id: ReaderId) -> Option<W> {
        let reader = self.readers.take(&id)?;
        self.of_all.retain(|other| *other != id);
        if let Some(lock) = reader.scope
            && let Some(ids) = self.of_lock.get_mut(&lock)
        {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.of_lock.take(&lock);
            }
        }
        reader.waker
    }

    /// Queues an event for its readers. Returns the wakers to wake.
    pub fn publish(&mut self, lock: LockId, lease: LeaseId, event: &LeaseEvent) -> Vec<W> {
        let of_lock = self.of_lock.get(&lock).into_iter().flatten();
        let mut wakers = Vec::new();
        for id in of_lock.chain(&self.of_all) {
            if let Some(reader) = self.readers.get_mut(id) {
                reader.push(lease.half(), event.clone());
                wakers.extend(reader.waker.take());
            }
        }
        wakers
    }

    /// Queues an event of no particular lock for the readers of all locks. Returns the wakers to wake.
    pub fn notify(&mut self, event: &LeaseEvent) -> Vec<W> {
        let mut wakers = Vec::new();
        for id in &self.of_all {
            if let Some(reader) = self.readers.get_mut(id) {
                reader.push(NO_LEASE.half(), event.clone());
                wakers.extend(reader.waker.take());
            }
        }
        wakers
    }

    /// Ends the readers of this lock once they have read what is queued. Returns the wakers to wake.
    pub fn end(&mut self, lock: LockId) -> Vec<W> {
        let mut wakers = Vec::new();
        for id in self.of_lock.get(&lock).into_iter().flatten() {
            wakers.extend(self.readers.get_mut(id).and_then(Reader::end));
        }
        wakers
    }

    /// Ends all readers once they have read what is queued. Returns the wakers to wake.
    pub fn end_all(&mut self) -> Vec<W> {
        self.ended = true;
        self.readers.values_mut().filter_map(Reader::end).collect()
    }

    /// Returns the reader's next event, or `None` at its end. If there is no event yet, stores `waker` and
    /// hands back the former one.
    pub fn poll(
        &mut self,
        id: ReaderId,
        engine: &Engine,
        now: Timestamp,
        waker: &mut Option<W>,
    ) -> Poll<Option<LeaseEvent>> {
        let Some(reader) = self.readers.get_mut(&id) else {
            return Poll::Ready(None);
        };
        match reader.next(engine, now) {
            Some(event) => Poll::Ready(Some(event)),
            None if reader.ended => Poll::Ready(None),
            None => {
                std::mem::swap(&mut reader.waker, waker);
                Poll::Pending
            }
        }
    }
}

impl<W> Reader<W> {
    fn end(&mut self) -> Option<W> {
        self.ended = true;
        self.waker.take()
    }

    fn push(&mut self, lease: HalfId, event: LeaseEvent) {
        match event {
            LeaseEvent::Acquired { .. } => self.count_held(1),
            LeaseEvent::Lost { .. } | LeaseEvent::Released { .. } | LeaseEvent::Passed { .. } => {
                self.held = self.held.saturating_sub(1);
            }
            _ => {}
        }
        let is_loss = matches!(event, LeaseEvent::Lost { .. });
        if self.missed > 0 && !is_loss {
            // The state that follows `Lagged` includes this event.
            self.missed += 1;
            return;
        }
        if matches!(event, LeaseEvent::Renewed { .. }) {
            let end = self.first + self.queue.len() as u64;
            let place = *self.renewed.get_or_insert_with(lease, || end);
            let index = usize::try_from(place.saturating_sub(self.first)).unwrap_or(usize::MAX);
            if let Some(unread) = self.queue.get_mut(index) {
                *unread = (lease, event);
                return;
            }
        } else {
            self.renewed.take(&lease);
        }
        self.queue.push_back((lease, event));
        if self.queue.len() > CAPACITY + self.most_held {
            self.lag();
        }
    }

    fn count_held(&mut self, more: usize) {
        self.held += more;
        self.most_held = self.most_held.max(self.held);
    }

    /// Drops the events that the next state repeats, and keeps the latest losses.
    fn lag(&mut self) {
        let queued = self.queue.len();
        self.queue
            .retain(&|(_, event)| matches!(event, LeaseEvent::Lost { .. }));
        let most = self.most_held.max(CAPACITY / 2);
        while self.queue.len() > most {
            self.queue.pop_front();
        }
        self.first += queued as u64;
        self.renewed = Table::default();
        self.missed += (queued - self.queue.len()) as u64;
    }

    fn next(&mut self, engine: &Engine, now: Timestamp) -> Option<LeaseEvent> {
        if self.missed > 0 {
            let missed = std::mem::take(&mut self.missed);
            self.queue_state(engine, now);
            return Some(LeaseEvent::Lagged { missed });
        }
        let Some((lease, event)) = self.queue.pop_front() else {
            self.most_held = self.held;
            return None;
        };
        if self.renewed.get(&lease) == Some(&self.first) {
            self.renewed.take(&lease);
        }
        self.first += 1;
        Some(event)
    }

    /// Queues the current state: an `Acquired` for each held lease, and for readers of all locks also a
    /// widened drift margin.
    fn queue_state(&mut self, engine: &Engine, now: Timestamp) {
        if self.scope.is_none()
            && let Some(event) = engine.clock_drift()
        {
            self.queue.push_back((NO_LEASE.half(), event));
        }
        let unread = self.queue.len();
        match self.scope {
            Some(lock) => self.queue_held(engine.held(now, lock)),
            None => self.queue_held(engine.all_held(now)),
        }
        self.held = 0;
        self.count_held(self.queue.len() - unread);
    }

    fn queue_held(&mut self, held: impl Iterator<Item = (LeaseId, LeaseEvent)>) {
        for (lease, event) in held {
            self.queue.push_back((lease.half(), event));
        }
    }
}
