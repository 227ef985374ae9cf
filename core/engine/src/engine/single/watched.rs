//! The watch of one held lock, which notices at once if another client changes it. Without it the holder
//! notices at its next renewal.

use std::time::Duration;

use super::{Single, watch};
use crate::engine::front::Who;

/// The state of the watch on one tenure's key.
#[derive(Debug)]
pub(super) struct Watched {
    /// The key is to be read soon.
    to_read: bool,
    /// The key was read, so the server reports the next change.
    is_read: bool,
    /// The number of checks left until the next renewal.
    checks_left: u8,
}

impl Watched {
    pub(super) fn new() -> Self {
        Self {
            to_read: false,
            is_read: false,
            checks_left: watch::MOST_CHECKS,
        }
    }

    /// Allows the full number of checks again after a renewal.
    pub(super) fn renewed(&mut self) {
        self.checks_left = watch::MOST_CHECKS;
    }

    /// Starts or restarts the watch if the lease lives long enough. The holder's own writes end a watch. With
    /// `soon`, the key is read after a delay, because the lock may be released before. Returns true if the
    /// caller should read the key now.
    pub(super) fn begin(
        &mut self,
        env: &mut Single,
        who: &Who,
        (ttl, soon): (Duration, bool),
    ) -> bool {
        // Others change the key of a shared name all the time.
        let is_own = who.spec.owner.share().is_none();
        let is_worth_it = is_own && self.checks_left > 0 && ttl >= watch::LEAST_TTL;
        if !is_worth_it || !env.watch.is_told(env.servers.of(&who.spec.key)) {
            return false;
        }
        if !std::mem::replace(&mut self.to_read, true) && soon {
            env.watch.want(&mut env.cx, who.id());
        }
        !soon
    }

    /// Reads the key if that is still to be done. Skips it while a renewal writes the key, since the watch
    /// restarts after that.
    pub(super) fn read(&mut self, env: &mut Single, who: &Who, is_written: bool) {
        if std::mem::take(&mut self.to_read) && !is_written {
            let key = &who.spec.key;
            if !std::mem::replace(&mut self.is_read, true) {
                env.watch.hear(key, who.id());
            }
            env.watch.read(&mut env.cx, (env.servers.of(key), key));
        }
    }

    /// Records that another client may have changed the key. No more changes are noticed until the key is
    /// read again.
    pub(super) fn changed(&mut self) {
        self.is_read = false;
        self.checks_left = self.checks_left.saturating_sub(1);
    }

    /// Ends the watch with its tenure.
    pub(super) fn end(&self, env: &mut Single, who: &Who) {
        if self.is_read {
            env.watch.forget(&who.spec.key, who.id());
        }
    }
}
