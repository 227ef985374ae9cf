//! A command under a lease: it runs while the lease is held, and is gone before the lease ends.

use std::ffi::OsString;
use std::time::Duration;

use futures::StreamExt;
use leasehold::{
    Error, ErrorKind, Lease, LeaseEvent, LeaseEvents, LossReason, Lost, Name, Permit, Turn,
};
use nix::sys::signal::Signal;
use tokio::time::{sleep, timeout};

use crate::child::{Change, EventsPipe, Group, Ran, Signals, Start, now};
use crate::exit::{Failure, INTERNAL, LOST, NOT_ACQUIRED};
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

/// The lease that a command runs under.
#[derive(Debug)]
pub(crate) enum Held {
    Lease(Lease),
    /// A turn of a job: its tick is completed if the command ends with 0.
    Turn(Turn),
    /// A part of a shared name.
    Permit(Permit),
}

impl Held {
    fn lease(&self) -> &Lease {
        match self {
            Self::Lease(lease) => lease,
            Self::Turn(turn) => turn.lease(),
            Self::Permit(permit) => permit,
        }
    }

    /// Returns the variables of the environment that a lock's lease does not have.
    fn environment(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Lease(_) => Vec::new(),
            Self::Turn(turn) => vec![
                ("LEASEHOLD_TICK", turn.tick().to_string()),
                ("LEASEHOLD_MISSED", turn.missed().to_string()),
            ],
            Self::Permit(permit) => of_permit(permit),
        }
    }

    async fn release(self, completes: bool) -> Result<(), Error> {
        match self {
            Self::Lease(lease) => lease.release().await,
            Self::Turn(turn) if completes => turn.done().await,
            Self::Turn(turn) => turn.give_back().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
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
        let lost = lost.or(is_overheld.then_some(LossReason::Overheld));
        let ran = group.ran();
        drop(group);
        let failure = match ending {
            Some(Ending { why: Why::Loss, .. }) => Some(Self::lost(held.lease().name(), lost)),
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
    fn lost(name: &Name, reason: Option<LossReason>) -> Failure {
        let why = match reason {
            Some(reason) => reason.to_string(),
            None => "it was not renewed in time".to_owned(),
        };
        let what = format!("the lease on {name} was lost while the command ran: {why}");
        Failure::new(LOST, what)
    }

    /// Releases the lease. Only a lost lease is a failure: otherwise the lock ends after its time to live.
    async fn release(&self, held: Held, completes: bool) -> Result<(), Failure> {
        let left = held.lease().remaining();
        let name = held.lease().name().clone();
        let released = timeout(TO_RELEASE, held.release(completes)).await;
        let error = match released {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if error.is_not_held() => {
                let source = std::error::Error::source(&error);
                let lost = source.and_then(|source| source.downcast_ref::<Lost>());
                return Err(Self::lost(&name, lost.map(|lost| lost.reason)));
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

/// Renews a lease with little time left, as one has that was handed over, so that the command starts with its full time.
pub(crate) async fn with_time(lease: &Lease, ttl: Duration) -> Result<(), Failure> {
    if lease.remaining() < ttl / 2 {
        lease.renew().await?;
    }
    Ok(())
}

/// Returns the failure of a wait with this limit.
pub(crate) fn not_acquired(name: &str, limit: Option<Duration>) -> Failure {
    let (what, advice) = match limit {
        Some(wait) if !wait.is_zero() => (
            format!(
                "{name} was not acquired within {}: somebody else holds it",
                show(wait)
            ),
            "wait longer (--wait), or see the holder with leasehold inspect",
        ),
        _ => (
            format!("{name} was not acquired: somebody else holds it or waits for it"),
            "wait for it (--wait), or see the holder with leasehold inspect",
        ),
    };
    Failure::new(NOT_ACQUIRED, what).advise(advice)
}

/// Returns the variables of the environment that only a permit has.
fn of_permit(permit: &Permit) -> Vec<(&'static str, String)> {
    let slot = permit
        .slot()
        .map(|slot| ("LEASEHOLD_SLOT", slot.to_string()));
    let resource = ("LEASEHOLD_RESOURCE", permit.resource().into_owned());
    let generation = permit.generation();
    let generation = generation.map(|token| ("LEASEHOLD_GENERATION", token.to_string()));
    std::iter::once(resource)
        .chain(slot)
        .chain(generation)
        .collect()
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
    lease: &'a Lease,
    group: Group,
    pipe: EventsPipe,
    /// The end of the lease, by the clock that the guard uses too.
    deadline: Duration,
    lost: Option<LossReason>,
    /// True once no renewal can extend the lease, because of its age.
    is_overheld: bool,
    ending: Option<Ending>,
    asked: Asked,
}

impl<'a> Running<'a> {
    fn start(work: &'a Work<'a>, held: &'a Held, pipe: EventsPipe) -> Result<Self, Failure> {
        let lease = held.lease();
        let remaining = lease.remaining();
        let wall = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default()
            + remaining;
        let mut environment = vec![
            ("LEASEHOLD_NAME", lease.name().to_string()),
            ("LEASEHOLD_TOKEN", lease.token().to_string()),
            ("LEASEHOLD_DEADLINE", wall.as_millis().to_string()),
            ("LEASEHOLD_EVENTS_FD", pipe.number().to_string()),
        ];
        environment.extend(held.environment());
        let group = Group::start(&Start {
            name: lease.name().as_str(),
            command: work.command,
            environment,
            events: &pipe,
        })?;
        let mut running = Self {
            work,
            lease,
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
        let remaining = self.lease.remaining();
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
            self.lost.is_some() || !self.lease.is_valid() || time >= last.saturating_sub(grace);
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
        let name = self.lease.name();
        self.work.voice.note(&match (why, self.lost) {
            (Why::LeftBehind, _) => "the command left processes behind; ending them".to_owned(),
            (Why::Loss, Some(reason)) => format!("{name} was lost: {reason}: ending the command"),
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
        let lease = self.lease;
        let is_lost = self.lost.is_some();
        tokio::select! {
            biased;
            lost = lease.lost(), if !is_lost => self.has_lost(lost.reason),
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

    fn has_lost(&mut self, reason: LossReason) {
        self.lost = Some(reason);
        if !self.work.policy.stop {
            let name = self.lease.name();
            let voice = self.work.voice;
            voice.note(&format!(
                "{name} was lost: {reason}: the command goes on without it"
            ));
        }
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
        if signal == Signal::SIGCONT && !self.lease.is_valid() && self.work.policy.stop {
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
