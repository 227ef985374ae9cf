//! One server's place at a locker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::Driver;
use crate::engine::{Input, ServerId};
use crate::error::Error;
use crate::protocol::{self, LockKey};

/// Through this a store tells the engine what happens at it. It does not keep the locker alive.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(super) server: ServerId,
    driver: Weak<Driver>,
    /// Of a node of a cluster.
    alarm: Option<Arc<Alarm>>,
    /// Whether it stands for all nodes of a cluster.
    is_shared: bool,
}

/// Tells a cluster of its nodes' links.
pub(super) struct Alarm {
    is_up: AtomicBool,
    /// Rings when one goes.
    bell: Arc<Notify>,
}

impl Alarm {
    pub(super) fn new(is_up: bool, bell: Arc<Notify>) -> Self {
        let is_up = AtomicBool::new(is_up);
        Self { is_up, bell }
    }

    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    fn hear(&self, input: &Input) {
        match input {
            Input::Connected { .. } => self.is_up.store(true, Ordering::Release),
            Input::Disconnected { .. } => {
                self.is_up.store(false, Ordering::Release);
                self.bell.notify_one();
            }
            _ => {}
        }
    }
}

impl Seat {
    pub(super) fn new(driver: &Arc<Driver>, server: ServerId) -> Self {
        Self {
            server,
            driver: Arc::downgrade(driver),
            alarm: None,
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
    pub(super) fn of_node(driver: &Arc<Driver>, server: ServerId, alarm: Arc<Alarm>) -> Self {
        Self {
            alarm: Some(alarm),
            ..Self::new(driver, server)
        }
    }

    /// Who it was that a push came from: the nodes of a cluster pass them on to one another.
    pub(super) fn source(&self) -> Option<ServerId> {
        let is_one = self.alarm.is_none() && !self.is_shared;
        is_one.then_some(self.server)
    }

    /// These keys by what one command may name: of a cluster those of one slot.
    pub(super) fn at_once(&self, mut keys: Vec<LockKey>) -> Vec<Vec<LockKey>> {
        if self.alarm.is_none() {
            return vec![keys];
        }
        keys.sort_by_key(LockKey::slot);
        let groups = keys.chunk_by(|one, other| one.slot() == other.slot());
        groups.map(<[LockKey]>::to_vec).collect()
    }

    /// Whether the locker is still there.
    pub(super) fn is_taken(&self) -> bool {
        self.driver.strong_count() > 0
    }

    pub(crate) fn feed(&self, input: Input) {
        if let Some(alarm) = &self.alarm {
            alarm.hear(&input);
        }
        if let Some(driver) = self.driver.upgrade() {
            driver.feed(input);
        }
    }

    pub(crate) fn connected(&self) {
        let server = self.server;
        self.feed(Input::Connected { server });
    }

    pub(crate) fn disconnected(&self, error: Error) {
        let server = self.server;
        self.feed(Input::Disconnected { server, error });
    }

    /// What the store told this client.
    pub(crate) fn hear(&self, message: &[u8]) {
        match protocol::decode_push(message) {
            Ok(push) => self.feed(Input::Push {
                server: self.source(),
                push,
            }),
            Err(error) => tracing::warn!(target: "leasehold", %error, "a push was not understood"),
        }
    }

    pub(crate) fn subscribed(&self) {
        let server = self.server;
        self.feed(Input::Subscribed { server });
    }

    pub(crate) fn unsubscribed(&self) {
        let server = self.server;
        self.feed(Input::Unsubscribed { server });
    }
}
