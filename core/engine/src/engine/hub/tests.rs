use std::time::Duration;

use super::*;
use crate::engine::Settings;
use crate::event::LossReason;
use crate::name::Name;
use crate::protocol::ClientId;
use crate::testing::Host;
use crate::token::FencingToken;

const LOCK: LockId = LockId(1);
const READER: ReaderId = ReaderId(9);

struct Reading(Hub<()>, Engine);

impl Reading {
    fn new(scope: Option<LockId>) -> Self {
        let engine = Engine::new(Settings::new(ClientId(1)));
        let mut hub = Hub::default();
        hub.subscribe(READER, scope, &engine, Timestamp::from_nanos(0));
        Self(hub, engine)
    }

    /// Publishes an event as if each lock had one lease.
    fn publish(&mut self, lock: LockId, event: &LeaseEvent) {
        let lease = LeaseId(u128::from(lock.0) << 64);
        self.0.publish(lock, lease, event);
    }

    fn queued(&self) -> usize {
        let reader = self.0.readers.get(&READER);
        reader.map_or(0, |reader| reader.queue.len())
    }

    fn read(&mut self) -> Vec<LeaseEvent> {
        let (now, waker) = (Timestamp::from_nanos(0), &mut None);
        let mut events = Vec::new();
        while let Poll::Ready(Some(event)) = self.0.poll(READER, &self.1, now, waker) {
            events.push(event);
        }
        events
    }
}

fn name() -> Name {
    Name::new("n").expect("a valid name")
}

fn token(token: u64) -> FencingToken {
    FencingToken::new(token).expect("a valid token")
}

fn acquired(t: u64) -> LeaseEvent {
    LeaseEvent::Acquired {
        name: name(),
        token: token(t),
        remaining: Duration::ZERO,
    }
}

fn renewed(t: u64, seconds: u64) -> LeaseEvent {
    let remaining = Duration::from_secs(seconds);
    LeaseEvent::Renewed {
        name: name(),
        token: token(t),
        remaining,
    }
}

fn at_risk(t: u64) -> LeaseEvent {
    LeaseEvent::AtRisk {
        name: name(),
        token: token(t),
        remaining: Duration::ZERO,
        error: crate::Error::no_answer(),
    }
}

fn lost(t: u64) -> LeaseEvent {
    LeaseEvent::Lost {
        name: name(),
        token: token(t),
        reason: LossReason::Deleted,
    }
}

fn released(t: u64) -> LeaseEvent {
    LeaseEvent::Released {
        name: name(),
        token: token(t),
    }
}

#[test]
fn unread_renewals_merge_into_the_newest() {
    let mut reading = Reading::new(Some(LOCK));
    reading.publish(LOCK, &acquired(1));
    for second in 0..10_000 {
        reading.publish(LOCK, &renewed(1, second));
    }
    assert_eq!(reading.read(), [acquired(1), renewed(1, 9_999)]);
    reading.publish(LOCK, &renewed(1, 3));
    assert_eq!(
        reading.read(),
        [renewed(1, 3)],
        "an event that was read is not replaced"
    );
}

/// Catches a merge across a loss, which would show a renewal of a lost lease.
#[test]
fn a_renewal_does_not_move_across_another_event_of_its_lock() {
    let mut reading = Reading::new(None);
    let events = [
        renewed(1, 1),
        lost(1),
        acquired(2),
        renewed(2, 1),
        released(2),
        acquired(3),
    ];
    for event in &events {
        reading.publish(LOCK, event);
    }
    assert_eq!(reading.read(), events);
}

#[test]
fn renewals_of_many_locks_merge_each_with_its_own() {
    let mut reading = Reading::new(None);
    for second in 0..100 {
        for lock in 1..=50 {
            reading.publish(LockId(lock), &renewed(lock, second));
        }
    }
    let events = reading.read();
    assert_eq!(events.len(), 50);
    assert!(
        events
            .iter()
            .zip(1..)
            .all(|(event, lock)| *event == renewed(lock, 99))
    );
}

#[test]
fn a_slow_reader_lags_and_keeps_the_losses() {
    let mut reading = Reading::new(Some(LOCK));
    let cycles = 5_000;
    for t in 1..=cycles {
        reading.publish(LOCK, &acquired(t));
        reading.publish(LOCK, &if t % 100 == 0 { lost(t) } else { released(t) });
    }
    let queued = reading.queued();
    assert!(queued <= CAPACITY, "{queued} events are kept");
    let events = reading.read();
    let LeaseEvent::Lagged { missed } = events[0] else {
        panic!("{:?} came first", events[0])
    };
    assert_eq!(
        missed + events.len() as u64 - 1,
        2 * cycles,
        "every event is delivered or counted as missed"
    );
    let losses = events
        .iter()
        .filter(|event| matches!(event, LeaseEvent::Lost { .. }));
    assert_eq!(losses.count(), 50, "no loss is missed");
}

#[test]
fn more_losses_than_fit_keep_the_latest() {
    let mut reading = Reading::new(Some(LOCK));
    for t in 1..=10_000 {
        reading.publish(LOCK, &lost(t));
    }
    let events = reading.read();
    assert!(events.len() <= CAPACITY + 1);
    assert_eq!(events.last(), Some(&lost(10_000)));
}

/// Catches a bound on losses that does not grow with the leases: an outage ends all leases at once.
#[test]
fn a_reader_that_keeps_up_is_told_of_every_loss_of_a_large_locker() {
    let (mut reading, leases) = (Reading::new(None), 5_000);
    for lock in 1..=leases {
        reading.publish(LockId(lock), &acquired(lock));
        reading.read();
    }
    for _ in 0..2 {
        for lock in 1..=leases {
            reading.publish(LockId(lock), &at_risk(lock));
        }
        assert_eq!(reading.read().len() as u64, leases);
    }
    for lock in 1..=leases {
        reading.publish(LockId(lock), &lost(lock));
    }
    let events = reading.read();
    assert!((1..=leases).map(lost).eq(events));
}

/// Events that the reader did not read may be dropped, except the losses of leases that were held.
#[test]
fn a_slow_reader_is_told_of_every_loss_of_a_large_locker() {
    let (mut reading, leases) = (Reading::new(None), 5_000);
    for lock in 1..=leases {
        reading.publish(LockId(lock), &acquired(lock));
    }
    for lock in 1..=leases {
        reading.publish(LockId(lock), &at_risk(lock));
        reading.publish(LockId(lock), &lost(lock));
    }
    let losses = reading.read();
    let losses = losses
        .iter()
        .filter(|event| matches!(event, LeaseEvent::Lost { .. }));
    assert!((1..=leases).map(lost).eq(losses.cloned()));
}

/// Catches a bound that stays high after a burst.
#[test]
fn the_bound_falls_again_with_the_leases() {
    let mut reading = Reading::new(None);
    for of in [acquired, released] {
        for lock in 1..=5_000 {
            reading.publish(LockId(lock), &of(lock));
            reading.read();
        }
    }
    for t in 1..=5_000 {
        reading.publish(LOCK, &lost(t));
    }
    assert!(reading.queued() <= CAPACITY);
}

#[test]
fn events_queued_before_the_end_are_still_delivered() {
    let mut reading = Reading::new(Some(LOCK));
    reading.publish(LOCK, &released(1));
    reading.0.end(LOCK);
    let (now, mut waker) = (Timestamp::from_nanos(0), None);
    let mut poll = || reading.0.poll(READER, &reading.1, now, &mut waker);
    assert_eq!(poll(), Poll::Ready(Some(released(1))));
    assert_eq!(poll(), Poll::Ready(None));
}

/// Catches a reader that goes on after it was closed, and one that ends with another.
#[test]
fn closing_a_reader_returns_its_waker_and_leaves_the_others() {
    let (engine, now) = (
        Engine::new(Settings::new(ClientId(1))),
        Timestamp::from_nanos(0),
    );
    let mut hub = Hub::default();
    let readers = [(1, Some(LOCK)), (2, Some(LOCK)), (3, None), (4, None)];
    for (id, scope) in readers {
        hub.subscribe(ReaderId(id), scope, &engine, now);
        let none_yet = hub.poll(ReaderId(id), &engine, now, &mut Some(id));
        assert_eq!(none_yet, Poll::Pending);
    }
    assert_eq!(hub.unsubscribe(ReaderId(1)), Some(1));
    assert_eq!(hub.unsubscribe(ReaderId(3)), Some(3));
    let mut woken = hub.publish(LOCK, LeaseId(1), &released(1));
    woken.sort_unstable();
    assert_eq!(woken, [2, 4]);
    for (id, scope) in readers {
        let open = id % 2 == 0;
        let next = hub.poll(ReaderId(id), &engine, now, &mut None);
        assert_eq!(next, Poll::Ready(open.then(|| released(1))), "{scope:?}");
    }
}

#[test]
fn the_end_wakes_all_who_wait() {
    let (engine, now) = (
        Engine::new(Settings::new(ClientId(1))),
        Timestamp::from_nanos(0),
    );
    let mut hub = Hub::default();
    for (id, scope) in [(1, Some(LOCK)), (2, None), (3, None)] {
        hub.subscribe(ReaderId(id), scope, &engine, now);
        let mut waker = (id != 2).then_some(id);
        assert_eq!(
            hub.poll(ReaderId(id), &engine, now, &mut waker),
            Poll::Pending
        );
    }
    let mut woken = hub.end_all();
    woken.sort_unstable();
    assert_eq!(woken, [1, 3]);
    assert_eq!(
        hub.poll(ReaderId(2), &engine, now, &mut None),
        Poll::Ready(None)
    );
}

/// Catches a renewal that takes the place of what was queued after a renewal that was read.
#[test]
fn a_renewal_takes_the_place_only_of_its_own_leases() {
    let (mut reading, other) = (Reading::new(None), LockId(2));
    reading.publish(LOCK, &renewed(1, 1));
    assert_eq!(reading.read(), [renewed(1, 1)]);
    reading.publish(other, &lost(2));
    reading.publish(LOCK, &renewed(1, 2));
    assert_eq!(reading.read(), [lost(2), renewed(1, 2)]);

    reading.publish(other, &acquired(3));
    reading.publish(LOCK, &renewed(1, 3));
    let (now, mut waker) = (Timestamp::from_nanos(0), None);
    let first = reading.0.poll(READER, &reading.1, now, &mut waker);
    assert_eq!(first, Poll::Ready(Some(acquired(3))));
    reading.publish(other, &lost(3));
    reading.publish(LOCK, &renewed(1, 4));
    assert_eq!(reading.read(), [renewed(1, 4), lost(3)]);
}

#[test]
fn a_reader_lags_only_when_its_queue_is_full() {
    let mut reading = Reading::new(Some(LOCK));
    for _ in 0..CAPACITY {
        reading.publish(LOCK, &released(1));
    }
    assert_eq!(reading.read().len(), CAPACITY);
    for _ in 0..=CAPACITY {
        reading.publish(LOCK, &released(1));
    }
    // The state that follows is told instead.
    reading.publish(LOCK, &acquired(2));
    let missed = CAPACITY as u64 + 2;
    assert_eq!(reading.read(), [LeaseEvent::Lagged { missed }]);
}

/// Catches losses that count as held leases, for which the queue has room.
#[test]
fn losses_that_are_kept_give_the_queue_no_more_room() {
    let mut reading = Reading::new(Some(LOCK));
    for t in 1..=10_000 {
        reading.publish(LOCK, &lost(t));
    }
    let kept = reading.queued();
    assert!(kept >= CAPACITY / 2);
    assert_eq!(reading.read().len(), kept + 1);
    for _ in 0..=CAPACITY {
        reading.publish(LOCK, &released(1));
    }
    let missed = CAPACITY as u64 + 1;
    assert_eq!(reading.read(), [LeaseEvent::Lagged { missed }]);
}

/// Catches a reader that hears nothing of a lease because it came after the acquisition.
#[test]
fn a_reader_that_comes_later_is_told_which_leases_are_held() {
    let mut host = Host::new();
    host.hold(LOCK);
    host.hold(LockId(2));
    for (scope, held) in [(Some(LOCK), 1), (None, 2), (Some(LockId(3)), 0)] {
        let mut hub = Hub::<()>::default();
        hub.subscribe(READER, scope, &host.engine, host.now);
        let mut told = 0;
        while let Poll::Ready(Some(event)) = hub.poll(READER, &host.engine, host.now, &mut None) {
            assert!(matches!(event, LeaseEvent::Acquired { .. }), "{event:?}");
            told += 1;
        }
        assert_eq!(told, held, "{scope:?}");
    }
}

/// Catches a loss that is dropped although there is room for it.
#[test]
fn losses_are_kept_up_to_half_of_the_queue() {
    let (mut reading, losses) = (Reading::new(Some(LOCK)), CAPACITY as u64 / 2);
    for t in 1..=losses {
        reading.publish(LOCK, &lost(t));
    }
    let others = CAPACITY as u64 - losses + 1;
    for t in 1..=others {
        reading.publish(LOCK, &at_risk(t));
    }
    let events = reading.read();
    assert_eq!(events[0], LeaseEvent::Lagged { missed: others });
    assert!((1..=losses).map(lost).eq(events[1..].iter().cloned()));
}
