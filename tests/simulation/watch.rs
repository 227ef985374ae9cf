//! The notices that hosts get when others change locks: soon, late, never, or without a change.

use leasehold_engine::engine::{Input, ServerId};
use leasehold_engine::protocol::LockKey;

use crate::clock::MILLI;
use crate::world::World;

impl World {
    /// From now on the server reports changes, in most cases.
    pub(crate) fn begin_watch(&mut self, host: usize, server: ServerId) {
        if self.plan.changes > 0 && self.random.chance(90) {
            self.input(host, Input::Watching { server });
        }
    }

    /// Notes that a host reads keys.
    pub(crate) fn watch(&mut self, host: usize, keys: Vec<LockKey>) {
        self.hosts[host].watched.extend(keys);
        self.checks.saw("keys were read");
    }

    /// Reports the change of a key once to each host that has read it.
    pub(crate) fn changed(&mut self, key: &LockKey) {
        for host in 0..self.hosts.len() {
            if self.hosts[host].watched.remove(key) && self.random.chance(80) {
                let most = if self.random.chance(20) { 500 } else { 5 };
                self.hears(host, Some(key.clone()), most);
                self.checks.saw("heard of a change at once");
            }
        }
    }

    /// Reports a change that did not happen.
    pub(crate) fn change_nothing(&mut self) {
        let keys = self.plan.keys();
        for host in 0..self.hosts.len() {
            while self.random.chance(self.plan.changes) {
                let which = self.random.below(100) % (keys.len() as u64 + 1);
                let key = usize::try_from(which)
                    .ok()
                    .and_then(|which| keys.get(which));
                let key = key.cloned();
                self.hears(host, key, 40);
                self.checks.saw("heard of a change in vain");
            }
        }
    }

    fn hears(&mut self, host: usize, key: Option<LockKey>, most: u64) {
        let at = self.now + self.random.below(most * MILLI);
        self.deliver_at(at, host, None, Input::Changed { key });
    }
}
