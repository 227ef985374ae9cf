//! A command under a lease: it runs while the lease is held, and is gone before the lease ends.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use futures::StreamExt;
use leasehold::{Error, ErrorKind, LeaseEvent, LeaseEvents, LossReason, Lost};
use nix::sys::signal::Signal;
use tokio::time::{sleep, timeout};

use crate::child::{Change, EventsPipe, Group, Ran, Signals, Start, now};
use crate::exit::{Failure, INTERNAL, LOST, NOT_ACQUIRED};
use crate::held::Held;
use crate::say::Voice;
use crate::times::show;

/// How often the lease is checked when nothing happens: the machine may have slept.
const LOOK: Duration = Duration::from_millis(250);
/// How often the group is checked while it ends: not every member reports its end.
const LOOK_AT_THE_END: Duration = Duration::from_millis(5);
/// How long a process may take to disappear after SIGKILL.
const TO_DIE: Duration = Duration::from_secs(2);
/// How long the store may take to confirm a release.
const TO_RELEASE: Duration = Duration::from_secs(5);

/// How the command ends when the lease is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// The time from SIGTERM to SIGKILL.
    pub(crate) grace: Duration,
    /// How long before the deadline the whole group must be gone.
    pub(crate) margin: Duration,
    /// True if the command is ended; otherwise the loss only causes a warning.
    pub(crate) stop: bool,
}

impl Policy {
    /// Returns how long before the deadline SIGKILL is sent. It takes a moment itself, and longer on a busy machine.
    pub(crate) fn margin(ttl: Duration) -> Duration {
        (ttl / 20).clamp(Duration::from_millis(50), Duration::from_millis(500))
    }
}

/// How the work ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The command ended by itself, under the lease.
    Ran(Ran, Asked),
    /// The lease was lost or about to end, and the command was ended.
    Lost(Failure, Asked),
}

/// The signal that asked this process and the command to end, if there was one.
pub(crate) type Asked = Option<Signal>;

/// The command to run under each lease, and how.
pub(crate) struct Work<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) policy: Policy,
    pub(crate) voice: &'a Voice,
}

impl Work<'_> {
    /// Runs the command under the lease, and releases the lease. Completes the tick of a turn if the command ended
    /// with 0.
    pub(crate) async fn run(
        &self,
        held: Held,
        events: &mut LeaseEvents,
        pipe: EventsPipe,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        let mut running = Running::start(self, &held, pipe)?;
        while running.step() {
            running.wait(events, signals).await;
        }
        let Running {
            mut pipe,
            mut group,
            ending,
            asked,
            lost,
            is_overheld,
            ..
        } = running;
        let ran = group.ran();
        drop(group);
        let failure = match ending {
            Some(Ending { why: Why::Loss, .. }) => Some(match lost {
                Some(Lost { name, reason, .. }) => Self::lost(&name, Some(reason)),
                None => Self::lost(held.name(), is_overheld.then_some(LossReason::Overheld)),
            }),
            _ => None,
        };
        let completes = failure.is_none() && ran.is_some_and(|ran| ran.code() == 0);
        let released = self.release(held, completes).await;
        while let Ok(Some(event)) = timeout(Duration::ZERO, events.next()).await {
            pipe.write(&event);
            self.voice.event(&event);
        }
        let failure = failure.or(released.err().filter(|_| self.policy.stop));
        Ok(match (failure, ran) {
            (Some(failure), _) => Ended::Lost(failure, asked),
            (None, Some(ran)) => Ended::Ran(ran, asked),
            (None, None) => {
                return Err(Failure::new(
                    INTERNAL,
                    "it is unknown how the command ended",
                ));
            }
        })
    }

    /// Describes a loss. `None` means that the lease was not renewed in time.
    fn lost(name: impl fmt::Display, reason: Option<LossReason>) -> Failure {
        let why = match reason {
            Some(reason) => reason.to_string(),
            None => "it was not renewed in time".to_owned(),
        };
        let what = format!("the lease on {name} was lost while the command ran: {why}");
        Failure::new(LOST, what)
    }

    /// Releases the lease. Only a lost lease is a failure: otherwise the lock ends after its time to live.
    async fn release(&self, held: Held, completes: bool) -> Result<(), Failure> {
        let (left, name) = (held.remaining(), held.name());
        let released = timeout(TO_RELEASE, held.release(completes)).await;
        let error = match released {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if error.is_not_held() => {
                let source = std::error::Error::source(&error);
                let lost = source.and_then(|source| source.downcast_ref::<Lost>());
                return Err(match lost {
                    Some(Lost { name, reason, .. }) => Self::lost(name, Some(*reason)),
                    None => Self::lost(name, None),
                });
            }
            Ok(Err(error)) => error,
            Err(_) => Error::no_answer(),
        };
        let left = show(left);
        self.voice.note(&format!(
            "{name} may stay locked for {left}: its release was not confirmed: {error}"
        ));
        Ok(())
    }
}

/// Returns the failure of a wait for these names with this limit.
pub(crate) fn not_acquired(names: &[String], limit: Option<Duration>) -> Failure {
    let (were, it) = match names {
        [name] => (format!("{name} was"), "it"),
        names => (format!("{} were", names.join(", ")), "one of them"),
    };
    let (what, advice) = match limit {
        Some(wait) if !wait.is_zero() => (
            format!(
                "{were} not acquired within {}: somebody else holds {it}",
                show(wait)
            ),
            "wait longer (--wait), or see the holder with leasehold inspect",
        ),
        _ => (
            format!("{were} not acquired: somebody else holds {it} or waits for {it}"),
            "wait for it (--wait), or see the holder with leasehold inspect",
        ),
    };
    Failure::new(NOT_ACQUIRED, what).advise(advice)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    Loss,
    /// The command ended and left other processes of its group behind.
    LeftBehind,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    why: Why,
    kill_at: Duration,
    killed_at: Option<Duration>,
}

struct Running<'a> {
    work: &'a Work<'a>,
    held: &'a Held,
    group: Group,
    pipe: EventsPipe,
    /// The end of the lease, by the clock that the guard uses too.
    deadline: Duration,
    lost: Option<Lost>,
    /// True once no renewal can extend the lease, because of its age.
    is_overheld: bool,
    ending: Option<Ending>,
    asked: Asked,
}

impl<'a> Running<'a> {
    fn start(work: &'a Work<'a>, held: &'a Held, pipe: EventsPipe) -> Result<Self, Failure> {
        let remaining = held.remaining();
        let wall = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default()
            + remaining;
        let mut environment = held.environment();
        environment.extend([
            ("LEASEHOLD_DEADLINE", Some(wall.as_millis().to_string())),
            ("LEASEHOLD_EVENTS_FD", Some(pipe.number().to_string())),
        ]);
        let group = Group::start(&Start {
            name: &held.name(),
            command: work.command,
            environment,
            events: &pipe,
        })?;
        let mut running = Self {
            work,
            held,
            group,
            pipe,
            deadline: Duration::ZERO,
            lost: None,
            is_overheld: false,
            ending: None,
            asked: None,
        };
        running.look_at_lease();
        Ok(running)
    }

    /// Passes a deadline that a renewal moved on to the guard.
    fn look_at_lease(&mut self) {
        let policy = self.work.policy;
        let remaining = self.held.remaining();
        if remaining.is_zero() {
            return;
        }
        let deadline = now() + remaining;
        // The two clocks are read at different times, so a difference of a millisecond is not a renewal.
        if deadline > self.deadline + Duration::from_millis(2) {
            self.deadline = deadline;
            // The guard acts a little later, so that this process acts first if it can.
            let guarded = self.guarded();
            self.group.may_live_until(policy.stop.then_some(guarded));
        }
    }

    /// Returns the time at which the guard kills the group.
    fn guarded(&self) -> Duration {
        self.deadline.saturating_sub(self.work.policy.margin / 2)
    }

    /// Does what is due. Returns false if the group is gone, or nothing more can be done.
    fn step(&mut self) -> bool {
        if self.ending.is_none() && self.work.policy.stop && now() >= self.guarded() {
            // This process was paused, and the guard has killed the group, even if a renewal still arrives.
            self.end(Why::Loss);
        }
        self.look_at_lease();
        if self.group.ran().is_some() && !self.group.is_alive() {
            return false;
        }
        let Policy {
            stop,
            margin,
            grace,
        } = self.work.policy;
        let time = now();
        let last = if stop {
            self.deadline.saturating_sub(margin)
        } else {
            Duration::MAX
        };
        let over =
            self.lost.is_some() || !self.held.is_valid() || time >= last.saturating_sub(grace);
        if self.ending.is_none() && self.group.ran().is_some() {
            self.end(Why::LeftBehind);
        } else if self.ending.is_none() && stop && over {
            self.end(Why::Loss);
        }
        if let Some(ending) = &mut self.ending {
            ending.kill_at = ending.kill_at.min(last);
        }
        self.end_by_force(time)
    }

    fn end(&mut self, why: Why) {
        self.group.ask_to_end();
        self.ending = Some(Ending {
            why,
            kill_at: now() + self.work.policy.grace,
            killed_at: None,
        });
        let name = self.held.name();
        self.work.voice.note(&match (why, &self.lost) {
            (Why::LeftBehind, _) => "the command left processes behind; ending them".to_owned(),
            (Why::Loss, Some(Lost { name, reason, .. })) => {
                format!("{name} was lost: {reason}: ending the command")
            }
            (Why::Loss, None) if self.is_overheld => {
                let reason = LossReason::Overheld;
                format!("{name} is about to end: {reason}: ending the command")
            }
            (Why::Loss, None) => {
                format!("{name} is about to end and could not be renewed: ending the command")
            }
        });
    }

    fn end_by_force(&mut self, time: Duration) -> bool {
        let Some(ending) = &mut self.ending else {
            return true;
        };
        if time < ending.kill_at {
            return true;
        }
        let killed_at = *ending.killed_at.get_or_insert(time);
        // Repeated, because a process that was just forked may have been missed.
        let may = self.group.kill();
        let gives_up = time > killed_at + TO_DIE;
        if gives_up {
            let why = if may {
                "they do not die"
            } else {
                "they are another user's"
            };
            self.work.voice.note(&format!(
                "processes of the command go on without the lock: {why}"
            ));
        }
        !gives_up
    }

    /// Waits until something happens.
    async fn wait(&mut self, events: &mut LeaseEvents, signals: &mut Signals) {
        let pause = self.pause();
        let held = self.held;
        let is_lost = self.lost.is_some();
        tokio::select! {
            biased;
            lost = held.lost(), if !is_lost => self.has_lost(lost),
            signal = signals.next() => self.take(signal),
            Some(event) = events.next() => {
                self.is_overheld |= matches!(
                    &event,
                    LeaseEvent::AtRisk { error, .. } if error.kind() == ErrorKind::Overheld
                );
                self.pipe.write(&event);
                self.work.voice.event(&event);
            }
            () = sleep(pause) => {}
        }
    }

    fn has_lost(&mut self, lost: Lost) {
        if !self.work.policy.stop {
            let Lost { name, reason, .. } = &lost;
            self.work.voice.note(&format!(
                "{name} was lost: {reason}: the command goes on without it"
            ));
        }
        self.lost = Some(lost);
    }

    fn pause(&self) -> Duration {
        let Policy { grace, margin, .. } = self.work.policy;
        match self.ending {
            Some(ending) => ending.kill_at.saturating_sub(now()).min(LOOK_AT_THE_END),
            None if self.work.policy.stop => self
                .deadline
                .saturating_sub(now() + grace + margin)
                .min(LOOK),
            None => LOOK,
        }
        .max(Duration::from_millis(1))
    }

    fn take(&mut self, signal: Signal) {
        if signal == Signal::SIGCONT && !self.held.is_valid() && self.work.policy.stop {
            // This process was stopped, and the lease is over: the command must not be continued.
            return;
        }
        match self.group.take(signal) {
            Change::HandedOn(Signal::SIGTSTP | Signal::SIGUSR1 | Signal::SIGUSR2)
            | Change::Here => {}
            Change::HandedOn(signal) => self.asked = Some(signal),
        }
    }
}
