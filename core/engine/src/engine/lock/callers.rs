//! The calls that wait for one acquisition.

use crate::engine::ctx::Ctx;
use crate::engine::io::{Acquired, Answer, CallId, Wait};
use crate::error::{Error, ErrorKind};
use crate::time::Timestamp;

/// How many calls may share one acquisition.
const MAX_CALLERS: usize = 65_536;

#[derive(Debug)]
pub(in crate::engine) struct Caller {
    pub(in crate::engine) call: CallId,
    pub(in crate::engine) wait: Wait,
    pub(in crate::engine) asked: Timestamp,
}

#[derive(Debug)]
pub(in crate::engine) struct Callers {
    all: Vec<Caller>,
    /// The first and the last moment at which one of them stops waiting.
    pub(in crate::engine) soonest: Timestamp,
    pub(in crate::engine) latest: Timestamp,
}

impl Caller {
    pub(in crate::engine) fn until(&self) -> Timestamp {
        match self.wait {
            Wait::Until(until) => until,
            Wait::Never | Wait::Forever => Timestamp::NEVER,
        }
    }

    /// Whether its time is over already; it is answered then.
    pub(in crate::engine) fn is_too_late(&self, cx: &mut Ctx) -> bool {
        let over = self.until() <= cx.now;
        if over {
            let message = "there was no time left to ask the store";
            self.fail(cx, Error::new(ErrorKind::Timeout, message));
        }
        over
    }

    pub(in crate::engine) fn fail(&self, cx: &mut Ctx, error: Error) {
        cx.answer(self.call, Answer::Acquire(Err(error)));
    }

    /// It has the lock.
    pub(in crate::engine) fn succeed(&self, cx: &mut Ctx, acquired: Acquired) {
        cx.counts.got(cx.now, self.asked);
        let waited = cx.now.since(self.asked);
        let acquired = Acquired { waited, ..acquired };
        cx.answer(self.call, Answer::Acquire(Ok(Some(acquired))));
    }
}

impl Callers {
    pub(in crate::engine) fn of(caller: Caller) -> Self {
        let mut callers = Self {
            all: Vec::new(),
            soonest: Timestamp::NEVER,
            latest: Timestamp::from_nanos(0),
        };
        callers.add(caller);
        callers
    }

    pub(in crate::engine) fn is_full(&self) -> Option<Error> {
        (self.all.len() >= MAX_CALLERS).then(|| {
            let message = format!("{MAX_CALLERS} calls wait for this lock already");
            Error::new(ErrorKind::Overloaded, message)
        })
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether anybody wants a place in line.
    pub(in crate::engine) fn wait(&self) -> bool {
        self.all.iter().any(|caller| caller.wait != Wait::Never)
    }

    pub(in crate::engine) fn add(&mut self, caller: Caller) {
        let until = caller.until();
        self.soonest = self.soonest.min(until);
        self.latest = self.latest.max(until);
        self.all.push(caller);
    }

    /// Takes out those that a condition holds for.
    pub(in crate::engine) fn remove(&mut self, condition: impl Fn(&Caller) -> bool) -> Vec<Caller> {
        let removed: Vec<_> = self
            .all
            .extract_if(.., |caller| condition(caller))
            .collect();
        if !removed.is_empty() {
            let rest = self.all.iter().map(Caller::until);
            self.soonest = rest.clone().min().unwrap_or(Timestamp::NEVER);
            self.latest = rest.max().unwrap_or(Timestamp::from_nanos(0));
        }
        removed
    }

    pub(in crate::engine) fn take(&mut self) -> Vec<Caller> {
        std::mem::take(&mut self.all)
    }

    /// Ends the waiting for all.
    pub(in crate::engine) fn fail(&mut self, cx: &mut Ctx, error: &Error) {
        for caller in self.take() {
            caller.fail(cx, error.clone());
        }
    }
}
