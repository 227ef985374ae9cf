//! The in-memory store.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_engine::protocol::{BatchReply, ClientId, Op, Push};
use leasehold_engine::time::{ServerTime, Timestamp};
use leasehold_engine::{Error, ErrorKind, MemoryServer};

use super::Input;
use super::sink::ServerSink;
use crate::clock::Clock;
use crate::rt;

pub(crate) struct MemoryStore {
    server: Mutex<MemoryServer>,
    clock: Clock,
    /// The wall clock's time and this clock's when the store was created. The store's time then follows this
    /// clock, even if the wall clock is set.
    origin: (ServerTime, Timestamp),
    links: Mutex<Links>,
    pushes: Mutex<Pushes>,
}

/// The lockers that use a store.
#[derive(Default)]
struct Links {
    /// True while lockers find the store unreachable.
    cut: bool,
    sinks: BTreeMap<ClientId, ServerSink>,
}

#[derive(Default)]
struct Pushes {
    subscribers: BTreeMap<ClientId, ServerSink>,
    queue: VecDeque<(ClientId, Push)>,
    /// True while a push is being delivered. Pushes are delivered in order, and one may cause the next.
    delivering: bool,
}

/// The stores of `memory://` URLs, as long as they are in use.
static NAMED: Mutex<BTreeMap<String, Weak<MemoryStore>>> = Mutex::new(BTreeMap::new());

impl MemoryStore {
    pub(super) fn new() -> Self {
        let clock = Clock::of_this_runtime();
        Self {
            server: Mutex::default(),
            origin: (rt::wall_clock(), clock.now()),
            clock,
            links: Mutex::default(),
            pushes: Mutex::default(),
        }
    }

    /// Returns the store of this name, which the whole process shares.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = named.get(name).and_then(Weak::upgrade) {
            return store;
        }
        let store = Arc::new(Self::new());
        named.insert(name.to_owned(), Arc::downgrade(&store));
        store
    }

    pub(super) fn execute(&self, batch: &[Op]) -> Result<BatchReply, Error> {
        self.check_link()?;
        let server = &mut *self.server();
        // Read the clock under the lock, so that the store's time never goes back.
        let now = self.origin.0 + self.clock.now().since(self.origin.1);
        let reply = server.execute(now, batch);
        let pushes = server.take_pushes();
        if !pushes.is_empty() {
            self.pushes().queue.extend(pushes);
        }
        Ok(reply)
    }

    /// Fails with [`ErrorKind::Unavailable`] while the store is cut off.
    pub(super) fn check_link(&self) -> Result<(), Error> {
        if self.links().cut {
            return Err(cut_off());
        }
        Ok(())
    }

    /// Reports to the engine from now on when the store is cut off and when it is back.
    pub(super) fn watch_link(&self, client: ClientId, sink: &ServerSink) {
        self.links().sinks.insert(client, sink.clone());
        if let Err(error) = self.check_link() {
            sink.disconnected(error);
        }
    }

    pub(super) fn subscribe(&self, client: ClientId, sink: &ServerSink) {
        self.pushes().subscribers.insert(client, sink.clone());
        self.server().subscribe(client);
        if self.check_link().is_ok() {
            sink.subscribed();
        }
    }

    pub(super) fn unsubscribe(&self, client: ClientId) {
        self.links().sinks.remove(&client);
        self.pushes().subscribers.remove(&client);
        self.server().unsubscribe(client);
    }

    /// Delivers the pushes that executed batches have caused, with nothing locked.
    pub(super) fn deliver_pushes(&self) {
        while let Some((sink, push)) = self.next_push() {
            let _delivered = Delivered(self);
            let server = Some(sink.server);
            sink.feed(Input::Push { server, push });
        }
    }

    fn next_push(&self) -> Option<(ServerSink, Push)> {
        let pushes = &mut *self.pushes();
        while !pushes.delivering {
            let (client, push) = pushes.queue.pop_front()?;
            if let Some(sink) = pushes.subscribers.get(&client) {
                pushes.delivering = true;
                return Some((sink.clone(), push));
            }
        }
        None
    }

    fn server(&self) -> MutexGuard<'_, MemoryServer> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pushes(&self) -> MutexGuard<'_, Pushes> {
        self.pushes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fault injection for tests.
impl MemoryStore {
    /// Makes the store unreachable. Pending pushes are lost.
    pub(crate) fn cut_off(&self) {
        let sinks = self.set_cut(true);
        self.pushes().queue.clear();
        for sink in sinks {
            sink.unsubscribed();
            sink.disconnected(cut_off());
        }
    }

    /// Makes the store reachable again.
    pub(crate) fn reconnect(&self) {
        for sink in self.set_cut(false) {
            sink.connected();
        }
        let hearing: Vec<_> = self.pushes().subscribers.values().cloned().collect();
        hearing.iter().for_each(ServerSink::subscribed);
    }

    /// Deletes all stored data.
    pub(crate) fn clear(&self) {
        self.server().flush();
    }

    /// Returns the sinks to notify; none if nothing changes.
    fn set_cut(&self, cut: bool) -> Vec<ServerSink> {
        let links = &mut *self.links();
        if std::mem::replace(&mut links.cut, cut) == cut {
            return Vec::new();
        }
        links.sinks.values().cloned().collect()
    }
}

fn cut_off() -> Error {
    Error::new(ErrorKind::Unavailable, "the in-memory store is cut off")
}

/// Ends the delivery of one push when it is dropped, even if a waker of the program panics.
struct Delivered<'a>(&'a MemoryStore);

impl Drop for Delivered<'_> {
    fn drop(&mut self) {
        self.0.pushes().delivering = false;
    }
}
