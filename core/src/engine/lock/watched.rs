//! Hearing at once that somebody else changed a held lock, instead of at its next renewal.

use std::time::Duration;

use super::who::Who;
use crate::engine::env::Env;
use crate::engine::watch;

/// How far that is, of one tenure.
#[derive(Debug)]
pub(super) struct Watched {
    /// Its key is to be read soon.
    to_read: bool,
    /// Its key was read, so that the next change is heard.
    is_read: bool,
    /// How often it may look until its next renewal because of a change.
    looks_left: u8,
}

impl Watched {
    pub(super) fn new() -> Self {
        Self {
            to_read: false,
            is_read: false,
            looks_left: watch::MOST_LOOKS,
        }
    }

    /// It was renewed.
    pub(super) fn renewed(&mut self) {
        self.looks_left = watch::MOST_LOOKS;
    }

    /// Its own write ended the watch, or it has just begun to live for so long.
    pub(super) fn begin(&mut self, env: &mut Env, who: &Who, ttl: Duration) {
        let is_worth_it = self.looks_left > 0 && ttl >= watch::LEAST_TTL;
        if is_worth_it && !self.to_read {
            let server = env.servers.of(&who.spec.key);
            self.to_read = env.watch.want(&mut env.cx, server, who.id());
        }
    }

    /// The time has come to read its key; but not while it is being written, after which it begins
    /// anew.
    pub(super) fn read(&mut self, env: &mut Env, who: &Who, is_written: bool) {
        self.to_read = false;
        if !is_written {
            let key = &who.spec.key;
            let server = env.servers.of(key);
            env.watch.read(&mut env.cx, (server, key), who.id());
            self.is_read = true;
        }
    }

    /// Somebody else may have changed its key. No more is heard until it is read again.
    pub(super) fn changed(&mut self) {
        self.is_read = false;
        self.looks_left = self.looks_left.saturating_sub(1);
    }

    /// It is over.
    pub(super) fn end(&self, env: &mut Env, who: &Who) {
        if self.is_read {
            env.watch.forget(&who.spec.key, who.id());
        }
    }
}
