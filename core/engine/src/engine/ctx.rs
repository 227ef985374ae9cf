//! The state that the parts of the engine share: the time, the settings, the outputs, the timers, and serial
//! numbers.

use std::num::NonZeroU64;

use super::io::{Answer, CallId, LockId, Output};
use super::queue::Queue;
use super::settings::Settings;
use super::stats::Counts;
use super::table::Id;
use super::timers::Timers;
use crate::event::LeaseEvent;
use crate::protocol::{HalfId, LeaseId};
use crate::time::Timestamp;

/// A number that identifies one attempt or request. Each is used only once.
pub(super) type Serial = NonZeroU64;

impl Id for Serial {
    fn number(self) -> u64 {
        self.get()
    }

    fn of(number: u64) -> Self {
        Self::new(number).unwrap_or(Self::MIN)
    }
}

/// The sender of an operation, and its attempt.
#[derive(Copy, Clone, Debug)]
pub(super) struct Origin {
    pub(super) whose: Whose,
    pub(super) attempt: Serial,
}

#[derive(Copy, Clone, Debug)]
pub(super) enum Whose {
    Contender(HalfId),
    Release(HalfId),
    Query(CallId),
    /// The check of a quorum's server for its incarnation.
    Entry,
}

#[derive(Debug)]
pub(super) struct Ctx {
    pub(super) now: Timestamp,
    pub(super) settings: Settings,
    pub(super) timers: Timers,
    pub(super) counts: Counts,
    outputs: Queue<Output>,
    last_serial: u64,
}

impl Ctx {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            now: Timestamp::from_nanos(0),
            settings,
            timers: Timers::default(),
            counts: Counts::new(),
            outputs: Queue::new(),
            last_serial: 0,
        }
    }

    /// Returns the number that varies this locker's pauses.
    pub(super) fn seed(&self) -> LeaseId {
        LeaseId(u128::from(self.settings.client.0))
    }

    pub(super) fn next_serial(&mut self) -> Serial {
        self.last_serial += 1;
        Serial::new(self.last_serial).unwrap_or(Serial::MAX)
    }

    pub(super) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(super) fn answer(&mut self, call: CallId, answer: Answer) {
        if let Answer::Acquire(got) = &answer {
            match got {
                Ok(Some(_)) => {}
                Ok(None) => self.counts.got_none(false),
                Err(_) => self.counts.got_none(true),
            }
        }
        self.push(Output::Answer { call, answer });
    }

    pub(super) fn emit(
        &mut self,
        (lock, lease): (LockId, LeaseId),
        event: LeaseEvent,
        deadline: Option<Timestamp>,
    ) {
        self.counts.happened(&event);
        self.push(Output::Event {
            lock,
            lease,
            event,
            deadline,
        });
    }

    pub(super) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn has_outputs(&self) -> bool {
        !self.outputs.is_empty()
    }
}
