//! The programs that use the locks: they do anything at any time.

use std::sync::Arc;
use std::time::Duration;

use leasehold_engine::engine::{CallId, Input, LockId, LockSpec, Wait};
use leasehold_engine::protocol::{LeaseId, Pattern};

use crate::book::{Call, Handle, LockState};
use crate::world::{Happening, World};

impl World {
    /// Does one act of a host's program. A paused host does nothing.
    pub(crate) fn act(&mut self, host: usize) {
        if self.now >= self.plan.chaos {
            return;
        }
        let next = self.now + 1 + self.random.below(2 * self.plan.pace);
        self.schedule(next, Happening::Act(host));
        if self.hosts[host].paused {
            return;
        }
        if self.plan.passes && self.random.chance(30) {
            return self.pass_or_accept(host);
        }
        if !self.plan.kinds.is_empty() && self.random.chance(8) {
            return self.act_on_part(host);
        }
        match self.random.below(206) {
            0..80 => self.acquire(host),
            80..100 => self.cancel(host),
            100..108 => self.renew(host),
            108..168 => self.release_one(host),
            168..178 => self.query(host, false),
            178..180 => self.list(host),
            180..190 if self.random.chance(self.plan.faults.force_releases * 25) => {
                self.query(host, true);
            }
            190..198 => self.close(host),
            200.. => self.request_yield(host),
            198.. if self.random.chance(25) => self.shut_down(host),
            _ => {}
        }
    }

    /// Cancels, releases and closes everything, or shuts down.
    pub(crate) fn give_everything_up(&mut self, host: usize) {
        if self.random.chance(40) {
            self.shut_down(host);
        }
        for (call, of) in self.hosts[host].book.cancellable() {
            self.cancel_call(host, call, of);
        }
        for lock in self.hosts[host].book.held() {
            while self.hosts[host]
                .book
                .locks
                .get(&lock)
                .is_some_and(|lock| lock.held.is_some())
            {
                self.release(host, lock);
            }
        }
    }

    pub(crate) fn new_call(&mut self, host: usize, call: Call) -> CallId {
        self.last_id += 1;
        let id = CallId(self.last_id);
        let host = &mut self.hosts[host];
        host.book.begin(id, call, host.clock.at(self.now));
        id
    }

    fn handle(&mut self, host: usize) -> LockId {
        let book = &self.hosts[host].book;
        let open = book.handles.iter().filter(|(_, handle)| !handle.closing);
        let open: Vec<_> = open.map(|(id, _)| *id).collect();
        let wanted = usize::try_from(self.plan.locks_per_host).unwrap_or(1);
        if open.len() >= wanted
            && let Some(id) = self.random.pick(&open)
        {
            return id;
        }
        self.last_id += 1;
        let id = LockId(self.last_id);
        let spec = self.plan.spec(&mut self.random, host, self.now);
        let closing = false;
        let book = &mut self.hosts[host].book;
        book.handles.insert(id, Handle { spec, closing });
        id
    }

    /// Returns the contender of a handle: the handle itself if it is re-entrant, otherwise a new one.
    pub(crate) fn contender(
        &mut self,
        host: usize,
        handle: LockId,
        spec: &Arc<LockSpec>,
    ) -> LockId {
        self.last_id += 1;
        let id = if spec.reentrant {
            handle
        } else {
            LockId(self.last_id)
        };
        let state = || LockState {
            handle,
            spec: spec.clone(),
            held: None,
            releasing: None,
            attempt: None,
        };
        let locks = &mut self.hosts[host].book.locks;
        locks.entry(id).or_insert_with(state);
        id
    }

    fn acquire(&mut self, host: usize) {
        let now = self.hosts[host].clock.at(self.now);
        let wait = match self.random.below(10) {
            0..3 => Wait::Never,
            3..7 => Wait::Until(now + Duration::from_millis(self.random.below(1_500))),
            _ => Wait::Forever,
        };
        self.acquire_now(host, wait);
    }

    pub(crate) fn acquire_now(&mut self, host: usize, wait: Wait) {
        let handle = self.handle(host);
        self.acquire_through(host, handle, wait);
    }

    pub(crate) fn acquire_through(&mut self, host: usize, handle: LockId, wait: Wait) {
        let Some(spec) = self.hosts[host].book.handles.get(&handle) else {
            return;
        };
        let spec = spec.spec.clone();
        let contender = self.contender(host, handle, &spec);
        let lease =
            LeaseId(u128::from(self.random.number()) << 64 | u128::from(self.random.number()));
        let now = self.hosts[host].clock.at(self.now);
        let (lock, book) = (contender, &mut self.hosts[host].book);
        book.acquire(lock, lease, wait, now);
        let call = self.new_call(host, Call::Acquire { lock, lease, wait });
        let lock = handle;
        self.input(
            host,
            Input::Acquire {
                call,
                lock,
                spec: self.plan.given(&spec),
                lease,
                wait,
            },
        );
    }

    fn cancel(&mut self, host: usize) {
        let calls = self.hosts[host].book.cancellable();
        if let Some((call, of)) = self.random.pick(&calls) {
            self.cancel_call(host, call, of);
        }
    }

    fn cancel_call(&mut self, host: usize, call: CallId, of: Option<(LockId, LeaseId)>) {
        // The time comes first, as it does natively: the call may be over by now.
        self.tick(host);
        if !self.hosts[host].book.is_pending(call) {
            return;
        }
        self.hosts[host].book.cancel(call);
        self.input(host, Input::Cancel { call, of });
        self.checks.saw("cancelled");
    }

    fn held_lock(&mut self, host: usize) -> Option<LockId> {
        let held = self.hosts[host].book.held();
        self.random.pick(&held)
    }

    fn renew(&mut self, host: usize) {
        let Some(lock) = self.held_lock(host) else {
            return;
        };
        let held = self.hosts[host]
            .book
            .locks
            .get(&lock)
            .and_then(|lock| lock.held.as_ref());
        let Some(lease) = held.map(|held| held.lease) else {
            return;
        };
        let call = self.new_call(host, Call::Renew { lock, lease });
        let longest = u64::try_from(self.plan.longest_lease().as_millis()).unwrap_or(100);
        let most = self.random.pick(&[100, longest / 10, longest]);
        let ttl = self.random.between(100, most.unwrap_or(100).max(100));
        let ttl = Some(Duration::from_millis(ttl)).filter(|_| self.random.chance(60));
        self.hosts[host].book.asks_for(lock, ttl);
        let renew = Input::Renew {
            call,
            lease,
            ttl: ttl.map(|ttl| self.plan.renewal(ttl)),
            floor: None,
        };
        self.input(host, renew);
    }

    fn release_one(&mut self, host: usize) {
        if let Some(lock) = self.held_lock(host) {
            self.release(host, lock);
        }
    }

    pub(crate) fn release(&mut self, host: usize, lock: LockId) {
        let Some(lease) = self.hosts[host].book.release(lock) else {
            return;
        };
        if self.plan.jobs && self.random.chance(60) {
            let call = self.new_call(host, Call::Release);
            return self.input(host, Input::Complete { call, lease });
        }
        let waits = self.random.chance(70);
        let call = waits.then(|| self.new_call(host, Call::Release));
        self.input(host, Input::Release { call, lease });
    }

    fn query(&mut self, host: usize, force: bool) {
        let key = self.plan.spec(&mut self.random, host, self.now).key.clone();
        let call = self.new_call(host, Call::Query);
        let input = if force {
            Input::ForceRelease {
                call,
                key,
                token: None,
            }
        } else {
            Input::Inspect { call, key }
        };
        self.input(host, input);
    }

    fn request_yield(&mut self, host: usize) {
        let spec = self.plan.spec(&mut self.random, host, self.now);
        if self.plan.kind(&spec.key).is_some() {
            // Holders of parts cannot be asked.
            return;
        }
        let call = self.new_call(host, Call::Query);
        let input = Input::RequestYield {
            call,
            key: spec.key.clone(),
            by: spec.owner.clone(),
            within: Duration::from_millis(self.random.below(2_000)),
        };
        self.input(host, input);
    }

    fn list(&mut self, host: usize) {
        if self.is_cluster() {
            // A listing covers one server only.
            return;
        }
        let pattern = Pattern::new("sim", "*").expect("the namespace is short");
        let (call, cursor) = (self.new_call(host, Call::Query), 0);
        let input = Input::List {
            call,
            pattern,
            cursor,
        };
        self.input(host, input);
    }

    fn close(&mut self, host: usize) {
        let handles: Vec<_> = self.hosts[host].book.handles.keys().copied().collect();
        let Some(lock) = self.random.pick(&handles) else {
            return;
        };
        if let Some(handle) = self.hosts[host].book.handles.get_mut(&lock)
            && !handle.closing
        {
            handle.closing = true;
            self.input(host, Input::Close { lock });
        }
    }

    pub(crate) fn shut_down(&mut self, host: usize) {
        self.hosts[host].book.shutdown = true;
        let call = self.new_call(host, Call::Shutdown);
        self.input(host, Input::Shutdown { call });
    }
}
