//! The calls that wait for one acquisition.

use crate::engine::ctx::Ctx;
use crate::engine::io::{Acquired, Answer, CallId, Wait};
use crate::error::{Error, ErrorKind};
use crate::time::Timestamp;

/// The limit of calls that share one acquisition.
const MAX_CALLERS: usize = 65_536;

#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) call: CallId,
    pub(crate) wait: Wait,
    pub(crate) asked: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Callers {
    all: Vec<Caller>,
    /// The earliest and the latest timeout of all callers.
    pub(crate) soonest: Timestamp,
    pub(crate) latest: Timestamp,
}

impl Caller {
    pub(crate) fn until(&self) -> Timestamp {
        match self.wait {
            Wait::Until(until) => until,
            Wait::Never | Wait::Forever => Timestamp::NEVER,
        }
    }

    /// Returns true, and fails the call, if its timeout has passed.
    pub(crate) fn is_too_late(&self, cx: &mut Ctx) -> bool {
        let over = self.until() <= cx.now;
        if over {
            let message = "the call timed out before it could ask the store";
            self.fail(cx, Error::new(ErrorKind::Timeout, message));
        }
        over
    }

    pub(crate) fn fail(&self, cx: &mut Ctx, error: Error) {
        cx.answer(self.call, Answer::Acquire(Err(error)));
    }

    /// Answers the call with its lease.
    pub(crate) fn succeed(&self, cx: &mut Ctx, acquired: Acquired) {
        cx.counts.got(cx.now, self.asked);
        let waited = cx.now.since(self.asked);
        let acquired = Acquired { waited, ..acquired };
        cx.answer(self.call, Answer::Acquire(Ok(Some(acquired))));
    }
}

impl Callers {
    pub(crate) fn of(caller: Caller) -> Self {
        let mut callers = Self {
            all: Vec::new(),
            soonest: Timestamp::NEVER,
            latest: Timestamp::from_nanos(0),
        };
        callers.add(caller);
        callers
    }

    pub(crate) fn is_full(&self) -> Option<Error> {
        (self.all.len() >= MAX_CALLERS).then(|| {
            let message =
                format!("too many calls wait for this lock already; the limit is {MAX_CALLERS}");
            Error::new(ErrorKind::Overloaded, message)
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// True if at least one caller waits in line.
    pub(crate) fn wait(&self) -> bool {
        self.all.iter().any(|caller| caller.wait != Wait::Never)
    }

    pub(crate) fn add(&mut self, caller: Caller) {
        let until = caller.until();
        self.soonest = self.soonest.min(until);
        self.latest = self.latest.max(until);
        self.all.push(caller);
    }

    /// Removes and returns the callers that match.
    pub(crate) fn remove(&mut self, condition: impl Fn(&Caller) -> bool) -> Vec<Caller> {
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

    pub(crate) fn take(&mut self) -> Vec<Caller> {
        std::mem::take(&mut self.all)
    }

    /// Fails all calls with this error.
    pub(crate) fn fail(&mut self, cx: &mut Ctx, error: &Error) {
        for caller in self.take() {
            caller.fail(cx, error.clone());
        }
    }
}
