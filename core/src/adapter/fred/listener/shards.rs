//! The channels of single locks at a cluster node. A message there stays with the node and its replicas,
//! while a message on the client's own channel goes to every node of the cluster.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_engine::protocol::LockKey;
use tokio::sync::Notify;

/// The most channels at one node. Locks beyond that, oldest first, are served by the client's own channel
/// again.
const MOST: usize = 1_024;

/// The locks of a node that this client waits for, or waited for recently.
#[derive(Default)]
pub(in crate::adapter::fred) struct Shards {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    known: BTreeSet<LockKey>,
    /// The known locks, oldest first.
    order: VecDeque<LockKey>,
    changes: Changes,
}

/// The channels to subscribe to, and those to leave.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) begun: Vec<LockKey>,
    pub(super) ended: Vec<LockKey>,
}

impl Shards {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to this lock's channel soon.
    pub(in crate::adapter::fred) fn add(&self, key: &LockKey) {
        let state = &mut *self.state();
        if !state.known.insert(key.clone()) {
            return;
        }
        state.order.push_back(key.clone());
        state.changes.begun.push(key.clone());
        if state.order.len() > MOST
            && let Some(oldest) = state.order.pop_front()
        {
            state.known.remove(&oldest);
            state.changes.begun.retain(|key| *key != oldest);
            state.changes.ended.push(oldest);
        }
        self.news.notify_one();
    }

    /// Waits for changes. Cancel safe.
    pub(super) async fn changes(&self) -> Changes {
        loop {
            let changes = std::mem::take(&mut self.state().changes);
            if !changes.begun.is_empty() || !changes.ended.is_empty() {
                return changes;
            }
            self.news.notified().await;
        }
    }

    /// Forgets all channels: the connection has no subscription any more. Waiters ask again, which adds their
    /// locks.
    pub(super) fn clear(&self) {
        *self.state() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use leasehold_engine::Name;

    fn key(number: usize) -> LockKey {
        let name = Name::new(format!("name-{number}")).expect("a valid name");
        LockKey::new("leasehold", &name).expect("a valid namespace")
    }

    #[test]
    fn the_oldest_lock_makes_room() {
        let shards = Shards::default();
        for number in 0..MOST {
            shards.add(&key(number));
            shards.add(&key(number));
        }
        let changes = shards.changes().now_or_never().expect("there is news");
        assert_eq!((changes.begun.len(), changes.ended.len()), (MOST, 0));
        shards.add(&key(MOST));
        let changes = shards.changes().now_or_never().expect("there is news");
        assert_eq!(changes.begun, [key(MOST)]);
        assert_eq!(changes.ended, [key(0)]);
        assert!(shards.changes().now_or_never().is_none());
        shards.clear();
        shards.add(&key(1));
        let changes = shards.changes().now_or_never().expect("there is news");
        assert_eq!(changes.begun, [key(1)]);
    }
}
