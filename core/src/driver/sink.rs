//! Reports what happens at one server to the engine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use leasehold_engine::Error;
use leasehold_engine::engine::{Input, ServerId};
use leasehold_engine::protocol::{self, LockKey};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::Driver;

/// A handle by which a store reports what happens at one of its servers. It does not keep the locker alive.
#[derive(Clone)]
pub(crate) struct ServerSink {
    pub(super) server: ServerId,
    driver: Weak<Driver>,
    /// Set for a cluster node.
    node: Option<Arc<NodeLink>>,
}

/// The link state of a cluster node.
pub(super) struct NodeLink {
    is_up: AtomicBool,
    /// Notified when the link breaks.
    changed: Arc<Notify>,
}

impl NodeLink {
    pub(super) fn new(is_up: bool, changed: Arc<Notify>) -> Self {
        let is_up = AtomicBool::new(is_up);
        Self { is_up, changed }
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    pub(super) fn hear(&self, input: &Input) {
        match input {
            Input::Connected { .. } => self.is_up.store(true, Ordering::Release),
            Input::Disconnected { .. } => {
                self.is_up.store(false, Ordering::Release);
                self.changed.notify_one();
            }
            _ => {}
        }
    }
}

impl ServerSink {
    pub(super) fn new(driver: &Arc<Driver>, server: ServerId) -> Self {
        Self {
            server,
            driver: Arc::downgrade(driver),
            node: None,
        }
    }

    /// Creates a handle whose locker is gone: it reports to nobody.
    #[cfg(test)]
    pub(super) fn without_locker() -> Self {
        Self {
            server: ServerId::ONLY,
            driver: Weak::new(),
            node: None,
        }
    }

    /// Creates the handle of a cluster node, which also updates the node's link state.
    pub(super) fn of_node(driver: &Arc<Driver>, server: ServerId, node: Arc<NodeLink>) -> Self {
        Self {
            node: Some(node),
            ..Self::new(driver, server)
        }
    }

    /// Returns the server that published a push, if known: cluster nodes forward pushes to one another.
    pub(super) fn source(&self) -> Option<ServerId> {
        self.node.is_none().then_some(self.server)
    }

    /// Groups keys by what one command may name: at a cluster, the keys of one slot.
    pub(super) fn at_once(&self, mut keys: Vec<LockKey>) -> Vec<Vec<LockKey>> {
        if self.node.is_none() {
            return vec![keys];
        }
        keys.sort_by_key(LockKey::slot);
        let groups = keys.chunk_by(|one, other| one.slot() == other.slot());
        groups.map(<[LockKey]>::to_vec).collect()
    }

    /// Returns true while the locker exists.
    pub(super) fn is_open(&self) -> bool {
        self.driver.strong_count() > 0
    }

    /// Returns the locker's runtime, while the locker exists.
    pub(super) fn runtime(&self) -> Option<Handle> {
        let driver = self.driver.upgrade()?;
        Some(driver.runtime.clone())
    }

    pub(super) fn feed(&self, input: Input) {
        if let Some(node) = &self.node {
            node.hear(&input);
        }
        if let Some(driver) = self.driver.upgrade() {
            driver.feed(input);
        }
    }

    pub(super) fn connected(&self) {
        let server = self.server;
        self.feed(Input::Connected { server });
    }

    pub(super) fn disconnected(&self, error: Error) {
        let server = self.server;
        self.feed(Input::Disconnected { server, error });
    }

    /// Reports a push.
    pub(super) fn hear(&self, message: &[u8]) {
        match protocol::decode_push(message) {
            Ok(push) => self.feed(Input::Push {
                server: self.source(),
                push,
            }),
            Err(error) => {
                tracing::warn!(target: "leasehold", %error, "a push could not be decoded");
            }
        }
    }

    pub(super) fn subscribed(&self) {
        let server = self.server;
        self.feed(Input::Subscribed { server });
    }

    pub(super) fn unsubscribed(&self) {
        let server = self.server;
        self.feed(Input::Unsubscribed { server });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a push of one cluster node that is taken for one of the node that passed it on. A grant's push
    /// states the time of the server that published it, and the engine would read it by the other's clock.
    #[test]
    fn a_cluster_node_is_not_the_source_of_its_pushes() {
        let alone = ServerSink::without_locker();
        assert_eq!(alone.source(), Some(ServerId::ONLY));
        let node = Some(Arc::new(NodeLink::new(true, Arc::default())));
        let of_node = ServerSink { node, ..alone };
        assert_eq!(of_node.source(), None);
    }
}
