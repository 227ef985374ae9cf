//! One server's place at a locker.

use std::sync::{Arc, Weak};

use super::Driver;
use crate::engine::{Input, ServerId};
use crate::error::Error;
use crate::protocol;

/// Through this a store tells the engine what happens at it. It does not keep the locker alive.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(super) server: ServerId,
    driver: Weak<Driver>,
}

impl Seat {
    pub(super) fn new(driver: &Arc<Driver>, server: ServerId) -> Self {
        Self {
            server,
            driver: Arc::downgrade(driver),
        }
    }

    /// Whether the locker is still there.
    pub(super) fn is_taken(&self) -> bool {
        self.driver.strong_count() > 0
    }

    pub(super) fn feed(&self, input: Input) {
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
                server: Some(self.server),
                push,
            }),
            Err(error) => tracing::warn!(%error, "a push was not understood"),
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
