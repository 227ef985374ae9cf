//! Tells the engine what happens at one server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::Driver;
use crate::engine::{Input, ServerId};
use crate::error::Error;
use crate::protocol::{self, LockKey};

/// Through this a store tells the engine what happens at one of its servers. It does not keep the locker alive.
#[derive(Clone)]
pub(crate) struct ServerSink {
    pub(super) server: ServerId,
    driver: Weak<Driver>,
    /// Of a node of a cluster.
    node: Option<Arc<NodeLink>>,
    /// Whether it stands for all nodes of a cluster.
    is_shared: bool,
}

/// Tells a cluster whether a node can be reached.
pub(super) struct NodeLink {
    is_up: AtomicBool,
    /// Notified when it goes.
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

    fn hear(&self, input: &Input) {
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
            is_shared: false,
        }
    }

    /// Of all nodes of a cluster, which its client does not tell apart.
    pub(super) fn shared(self) -> Self {
        Self {
            is_shared: true,
            ..self
        }
    }

    /// Of a node of a cluster, which hears of the link, too.
    pub(super) fn of_node(driver: &Arc<Driver>, server: ServerId, node: Arc<NodeLink>) -> Self {
        Self {
            node: Some(node),
            ..Self::new(driver, server)
        }
    }

    /// Who it was that a push came from: the nodes of a cluster pass them on to one another.
    pub(super) fn source(&self) -> Option<ServerId> {
        let is_one = self.node.is_none() && !self.is_shared;
        is_one.then_some(self.server)
    }

    /// These keys by what one command may name: of a cluster those of one slot.
    pub(super) fn at_once(&self, mut keys: Vec<LockKey>) -> Vec<Vec<LockKey>> {
        if self.node.is_none() {
            return vec![keys];
        }
        keys.sort_by_key(LockKey::slot);
        let groups = keys.chunk_by(|one, other| one.slot() == other.slot());
        groups.map(<[LockKey]>::to_vec).collect()
    }

    /// Whether the locker is still there.
    pub(super) fn is_open(&self) -> bool {
        self.driver.strong_count() > 0
    }

    /// The locker's runtime.
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

    /// What the store told this client.
    pub(super) fn hear(&self, message: &[u8]) {
        match protocol::decode_push(message) {
            Ok(push) => self.feed(Input::Push {
                server: self.source(),
                push,
            }),
            Err(error) => tracing::warn!(target: "leasehold", %error, "a push was not understood"),
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
