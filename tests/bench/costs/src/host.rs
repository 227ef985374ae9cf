//! A host that drives the engine step by step, with batches of a chosen size.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Owner;
use leasehold_engine::engine::{
    Answer, CallId, Engine, Input, LockId, LockOptions, LockSpec, Output, RequestId, ServerId,
    Settings, Wait,
};
use leasehold_engine::protocol::{BatchReply, ClientId, Command, Counter, LeaseId, LockKey, Op};
use leasehold_engine::time::Timestamp;

use crate::Result;
use crate::stores::Memory;

/// Longer than valgrind takes for anything here.
const ATTEMPT: Duration = Duration::from_secs(60);
pub(crate) const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// The store of a host's locks.
pub(crate) trait Store {
    fn now(&mut self) -> Timestamp;
    fn execute(&mut self, batch: &[Op]) -> Result<BatchReply>;
}

/// A locker with a number of locks.
pub(crate) struct Host<S> {
    pub(crate) store: S,
    /// The number of renewals that the store received.
    pub(crate) renewals: usize,
    /// True if the work of the engine is to be counted.
    pub(crate) counted: bool,
    engine: Engine,
    locks: Vec<Arc<LockSpec>>,
    /// The number of operations in a call of the store.
    per_call: usize,
    last_call: u64,
    wake: Option<Timestamp>,
}

impl<S: Store> Host<S> {
    pub(crate) fn new(store: S, locks: usize, ttl: Duration, per_call: usize) -> Result<Self> {
        let options = Arc::new(LockOptions {
            ttl,
            fixed: false,
            reentrant: false,
            owner: Owner::labelled("a-host/4711")?,
            counter: Counter::ClockFloor {
                retention: RETENTION,
            },
            durability: None,
            at_most: None,
            at_least: None,
            backlog: None,
            max_line: None,
            strict: false,
        });
        let spec = |number| {
            let name = format!("orders/{number:06}");
            let (name, key) = LockKey::with_name("leasehold", &name)?;
            let options = options.clone();
            Ok(Arc::new(LockSpec { name, key, options }))
        };
        let mut settings = Settings::new(ClientId(0x0123_4567_89ab_cdef));
        settings.command_timeout = ATTEMPT;
        let mut host = Self {
            store,
            renewals: 0,
            counted: false,
            engine: Engine::new(settings.checked()?),
            locks: (0..locks).map(spec).collect::<Result<_>>()?,
            per_call,
            last_call: 0,
            wake: None,
        };
        let server = ServerId::ONLY;
        host.handle(Input::Connected { server });
        host.settle()?;
        Ok(host)
    }

    /// Acquires and releases each lock this many times, as many at once as fit into a call.
    pub(crate) fn pairs(&mut self, rounds: usize) -> Result<()> {
        for _ in 0..rounds {
            let mut first = 0;
            while first < self.locks.len() {
                let next = self.locks.len().min(first + self.per_call);
                for lease in self.acquire(first..next)? {
                    let call = Some(self.call());
                    self.handle(Input::Release { call, lease });
                }
                self.settle()?;
                first = next;
            }
        }
        Ok(())
    }

    /// Acquires some of the locks.
    pub(crate) fn acquire(&mut self, range: std::ops::Range<usize>) -> Result<Vec<LeaseId>> {
        let mut leases = Vec::with_capacity(range.len());
        for number in range {
            let (call, spec) = (self.call(), self.locks[number].clone());
            // Digits that look random.
            let lease =
                LeaseId(u128::from(call.0).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
            let (lock, wait) = (LockId(number as u64 + 1), Wait::Never);
            let input = Input::Acquire {
                call,
                lock,
                spec,
                lease,
                wait,
            };
            self.handle(input);
            leases.push(lease);
        }
        self.settle()?;
        Ok(leases)
    }

    /// Renews these leases.
    pub(crate) fn renew(&mut self, leases: &[LeaseId]) -> Result<()> {
        for &lease in leases {
            let call = self.call();
            self.handle(Input::Renew {
                call,
                lease,
                ttl: None,
                floor: None,
            });
        }
        self.settle()
    }

    fn call(&mut self) -> CallId {
        self.last_call += 1;
        CallId(self.last_call)
    }

    fn handle(&mut self, input: Input) {
        let now = self.store.now();
        if self.counted {
            counted_engine_handle(&mut self.engine, now, input);
        } else {
            self.engine.handle(now, input);
        }
    }

    fn poll(&mut self) -> Output {
        if self.counted {
            counted_engine_poll(&mut self.engine)
        } else {
            self.engine.poll()
        }
    }

    /// Does what the engine asks for until it waits. A failed call is an error.
    fn settle(&mut self) -> Result<()> {
        loop {
            let sends = self.drain()?;
            if sends.is_empty() {
                return Ok(());
            }
            self.answer(sends)?;
        }
    }

    /// Returns the batches that the engine sends.
    fn drain(&mut self) -> Result<Vec<(RequestId, Vec<Op>)>> {
        let mut sends = Vec::new();
        loop {
            match self.poll() {
                Output::Send { request, batch, .. } => sends.push((request, batch)),
                Output::Answer { answer, .. } => check(answer)?,
                Output::Wait { until } => {
                    self.wake = until;
                    return Ok(sends);
                }
                _ => {}
            }
        }
    }

    /// Executes batches in calls of this host's size, whatever the engine's size is.
    fn answer(&mut self, sends: Vec<(RequestId, Vec<Op>)>) -> Result<()> {
        let sizes: Vec<_> = sends.iter().map(|(id, batch)| (*id, batch.len())).collect();
        let ops: Vec<Op> = sends.into_iter().flat_map(|(_, batch)| batch).collect();
        let renewals = ops
            .iter()
            .filter(|op| matches!(op.command, Command::Renew(_)));
        self.renewals += renewals.count();
        let (mut replies, mut time) = (Vec::with_capacity(ops.len()), None);
        for call in ops.chunks(self.per_call) {
            let reply = self.store.execute(call)?;
            time = Some(reply.time);
            replies.extend(reply.replies);
        }
        let time = match time {
            Some(time) => time,
            None => self.store.execute(&[])?.time,
        };
        let mut replies = replies.into_iter();
        for (request, size) in sizes {
            let replies = replies.by_ref().take(size).collect();
            self.handle(Input::Reply {
                server: ServerId::ONLY,
                request,
                result: Ok(BatchReply { time, replies }),
            });
        }
        Ok(())
    }
}

impl Host<Memory> {
    /// Lets time pass, in which held leases are renewed.
    pub(crate) fn hold(&mut self, time: Duration) -> Result<()> {
        let end = self.store.now() + time;
        while let Some(wake) = self.wake.filter(|wake| *wake < end) {
            self.store.sleep_until(wake);
            self.handle(Input::Tick);
            self.settle()?;
        }
        self.store.sleep_until(end);
        Ok(())
    }
}

fn check(answer: Answer) -> Result<()> {
    match answer {
        Answer::Acquire(Ok(Some(_))) | Answer::Release(Ok(())) | Answer::Renew(Ok(())) => Ok(()),
        other => Err(format!("not the answer for a free lock: {other:?}").into()),
    }
}

// Valgrind finds these two by their names.

#[inline(never)]
fn counted_engine_handle(engine: &mut Engine, now: Timestamp, input: Input) {
    engine.handle(now, input);
}

#[inline(never)]
fn counted_engine_poll(engine: &mut Engine) -> Output {
    engine.poll()
}
