//! A store in this process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Input;
use super::clock::Clock;
use super::seat::Seat;
use crate::memory::MemoryServer;
use crate::protocol::{BatchReply, ClientId, Op, Push};
use crate::rt;
use crate::time::{ServerTime, Timestamp};

pub(crate) struct MemoryStore {
    server: Mutex<MemoryServer>,
    clock: Clock,
    /// The wall clock's time and this clock's when the store was made. From there on its time follows
    /// this clock, also if the wall clock is set.
    origin: (ServerTime, Timestamp),
    pushes: Mutex<Pushes>,
}

#[derive(Default)]
struct Pushes {
    subscribers: BTreeMap<ClientId, Seat>,
    queue: VecDeque<(ClientId, Push)>,
    /// Whether a push is being delivered: one may cause the next, and they are delivered in order.
    delivering: bool,
}

/// The stores of `memory://` URLs, while somebody uses them.
static NAMED: Mutex<BTreeMap<String, Weak<MemoryStore>>> = Mutex::new(BTreeMap::new());

impl MemoryStore {
    pub(super) fn new() -> Self {
        let clock = Clock::of_this_runtime();
        Self {
            server: Mutex::default(),
            origin: (rt::wall_clock(), clock.now()),
            clock,
            pushes: Mutex::default(),
        }
    }

    /// The store of this name, which all of this process share.
    pub(super) fn named(name: &str) -> Arc<Self> {
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = named.get(name).and_then(Weak::upgrade) {
            return store;
        }
        let store = Arc::new(Self::new());
        named.insert(name.to_owned(), Arc::downgrade(&store));
        store
    }

    pub(super) fn execute(&self, batch: &[Op]) -> BatchReply {
        let server = &mut *self.server.lock().unwrap_or_else(PoisonError::into_inner);
        // Read with the lock held, so that the store's time never goes back.
        let now = self.origin.0 + self.clock.now().since(self.origin.1);
        let reply = server.execute(now, batch);
        let pushes = server.take_pushes();
        if !pushes.is_empty() {
            self.pushes().queue.extend(pushes);
        }
        reply
    }

    pub(super) fn subscribe(&self, client: ClientId, seat: &Seat) {
        self.pushes().subscribers.insert(client, seat.clone());
        self.server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .subscribe(client);
        seat.subscribed();
    }

    pub(super) fn unsubscribe(&self, client: ClientId) {
        self.pushes().subscribers.remove(&client);
        self.server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .unsubscribe(client);
    }

    /// Delivers the pushes that executed batches have caused, with nothing locked.
    pub(super) fn deliver_pushes(&self) {
        while let Some((seat, push)) = self.next_push() {
            let _delivered = Delivered(self);
            let server = Some(seat.server);
            seat.feed(Input::Push { server, push });
        }
    }

    fn next_push(&self) -> Option<(Seat, Push)> {
        let pushes = &mut *self.pushes();
        while !pushes.delivering {
            let (client, push) = pushes.queue.pop_front()?;
            if let Some(seat) = pushes.subscribers.get(&client) {
                pushes.delivering = true;
                return Some((seat.clone(), push));
            }
        }
        None
    }

    fn pushes(&self) -> MutexGuard<'_, Pushes> {
        self.pushes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the delivery of one push when it is dropped, even if a waker of the program panics.
struct Delivered<'a>(&'a MemoryStore);

impl Drop for Delivered<'_> {
    fn drop(&mut self) {
        self.0.pushes().delivering = false;
    }
}
