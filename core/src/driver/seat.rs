//! One server's place at a locker.

use std::sync::{Arc, Weak};

use super::Driver;
use crate::engine::{Input, ServerId};

/// Through this a store tells the engine what happens at it. It does not keep the locker alive.
#[derive(Clone)]
pub(super) struct Seat {
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

    pub(super) fn subscribed(&self) {
        let server = self.server;
        self.feed(Input::Subscribed { server });
    }

    pub(super) fn unsubscribed(&self) {
        let server = self.server;
        self.feed(Input::Unsubscribed { server });
    }
}
