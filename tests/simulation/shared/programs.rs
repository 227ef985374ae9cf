//! The programs that use shared names: they also resize them, and make writers readers.

use leasehold_engine::Sharing;
use leasehold_engine::engine::Input;
use leasehold_engine::protocol::LockKey;

use super::plan::Kind;
use crate::book::Call;
use crate::world::World;

impl World {
    /// Does something that only programs of shared names do.
    pub(crate) fn act_on_part(&mut self, host: usize) {
        if self.random.chance(50) {
            return self.downgrade(host);
        }
        let keys: Vec<_> = self.plan.kinds.keys().cloned().collect();
        let places: Vec<_> = (0..keys.len()).collect();
        let Some(place) = self.random.pick(&places) else {
            return;
        };
        let force = self.random.chance(self.plan.faults.force_releases * 5);
        if force {
            self.force_permit(host, &keys[place]);
        } else {
            self.resize(host, &keys[place]);
        }
    }

    /// Makes a writer a reader. From now on its program counts as a reader's.
    fn downgrade(&mut self, host: usize) {
        let locks = self.hosts[host].book.locks.values();
        let writers = locks.filter_map(|lock| {
            let held = lock.held.as_ref()?;
            let share = lock.spec.owner.share()?;
            share.is_writer().then_some((held.lease, held.token))
        });
        let writers: Vec<_> = writers.collect();
        let Some((lease, token)) = self.random.pick(&writers) else {
            return;
        };
        let lock = self.hosts[host].book.contender(lease);
        let Some(lock) = lock else { return };
        self.checks.known.readers.insert(lease);
        self.checks.saw("a writer wants to read");
        let call = self.new_call(host, Call::Renew { lock, lease });
        let renew = Input::Renew {
            call,
            lease,
            ttl: None,
            floor: Some(token),
        };
        self.input(host, renew);
    }

    fn resize(&mut self, host: usize, key: &LockKey) {
        let Some(Kind { sharing, .. }) = self.plan.kind(key) else {
            return;
        };
        if sharing == Sharing::Access {
            return;
        }
        let capacity = Kind::capacity(&mut self.random, sharing);
        let call = self.new_call(host, Call::Query);
        let resize = Input::Resize {
            call,
            key: key.clone(),
            sharing,
            capacity,
            counter: self.plan.counter,
        };
        self.input(host, resize);
    }

    /// Ends some permit.
    fn force_permit(&mut self, host: usize, key: &LockKey) {
        let state = self.state_of(key);
        let permits = state.iter().flat_map(|state| state.permits.values());
        let tokens: Vec<_> = permits.map(|permit| permit.token).collect();
        let token = self.random.pick(&tokens);
        let call = self.new_call(host, Call::Query);
        let key = key.clone();
        self.input(host, Input::ForceRelease { call, key, token });
    }
}
