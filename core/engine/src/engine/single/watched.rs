//! Hearing at once that somebody else changed a held lock, instead of at its next renewal.

use std::time::Duration;

use super::{Single, watch};
use crate::engine::front::Who;

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

    /// Its own write ended the watch, or it has just begun to live for so long: its key is to be read, soon if
    /// it may be released before. Returns whether it is to be read now.
    pub(super) fn begin(
        &mut self,
        env: &mut Single,
        who: &Who,
        (ttl, soon): (Duration, bool),
    ) -> bool {
        let is_worth_it = self.looks_left > 0 && ttl >= watch::LEAST_TTL;
        if !is_worth_it || !env.watch.is_told(env.servers.of(&who.spec.key)) {
            return false;
        }
        if !std::mem::replace(&mut self.to_read, true) && soon {
            env.watch.want(&mut env.cx, who.id());
        }
        !soon
    }

    /// The time has come to read its key, if that was not done yet; but not while it is being written, after
    /// which it begins anew.
    pub(super) fn read(&mut self, env: &mut Single, who: &Who, is_written: bool) {
        if std::mem::take(&mut self.to_read) && !is_written {
            let key = &who.spec.key;
            if !std::mem::replace(&mut self.is_read, true) {
                env.watch.hear(key, who.id());
            }
            env.watch.read(&mut env.cx, (env.servers.of(key), key));
        }
    }

    /// Somebody else may have changed its key. No more is heard until it is read again.
    pub(super) fn changed(&mut self) {
        self.is_read = false;
        self.looks_left = self.looks_left.saturating_sub(1);
    }

    /// It is over.
    pub(super) fn end(&self, env: &mut Single, who: &Who) {
        if self.is_read {
            env.watch.forget(&who.spec.key, who.id());
        }
    }
}
