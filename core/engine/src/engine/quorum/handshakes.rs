//! Finds out which members may vote: asks each for its incarnation, and tells it which others vote.

use std::time::Duration;

use super::admission::Admission;
use super::members::Members;
use crate::engine::ctx::Ctx;
use crate::engine::io::{Output, ServerId};
use crate::engine::pace::{Pace, retry};
use crate::engine::settings::Settings;
use crate::engine::single::Failure;
use crate::engine::timers::Timed;
use crate::error::{Error, ErrorKind};
use crate::event::LeaseEvent;
use crate::protocol::{Enter, Entered, Incarnation, LockKey, Terms};
use crate::time::Timestamp;

/// How long a locker's first lock waits for servers that may vote soon. Without the wait, the lock would
/// stand on only the first servers to vote, and be lost with one of them.
const OPENING: Duration = Duration::from_millis(100);

/// How often to check whether all leases stand on a server that votes again.
const LOOK: Duration = Duration::from_millis(100);

/// The admission handshakes with all members.
#[derive(Debug)]
pub(super) struct Handshakes {
    /// The key where members store their incarnations. `None` before the first lock: no member is asked until
    /// then.
    key: Option<LockKey>,
    /// Until when no member votes, because others may be admitted soon.
    opens_at: Option<Timestamp>,
    admission: Admission,
    all: Vec<Handshake>,
    /// How many incarnations this locker has named.
    named: u64,
}

/// The admission handshake with one member.
#[derive(Debug)]
struct Handshake {
    /// The turn of the pending request, and when it times out.
    under_way: Option<(u64, Timestamp)>,
    pace: Pace,
    down: bool,
    /// The member must be asked again, although it has replied.
    is_doubtful: bool,
    /// Why the last request had no reply.
    error: Option<Error>,
    standing: Standing,
    /// The incarnation whose quarantine was reported to the program, until its return is reported.
    announced: Option<Incarnation>,
    /// Until when the member's votes are reserved for holders whose leases do not stand on it after its
    /// quarantine.
    reserved_until: Timestamp,
    wake: Timestamp,
}

/// The voting status of a member.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Votes,
    /// It is not known yet whether the member may vote.
    Open,
    /// The member does not vote.
    Out,
}

impl Handshakes {
    pub(super) fn new(settings: &Settings, members: usize) -> Self {
        let handshake = || Handshake {
            under_way: None,
            pace: Pace::due_at(Timestamp::from_nanos(0)),
            down: false,
            is_doubtful: false,
            error: None,
            standing: Standing::Open,
            announced: None,
            reserved_until: Timestamp::from_nanos(0),
            wake: Timestamp::NEVER,
        };
        Self {
            key: None,
            opens_at: None,
            admission: Admission::new(members, settings.longest_ttl, settings.drift_margin),
            all: std::iter::repeat_with(handshake).take(members).collect(),
            named: 0,
        }
    }

    pub(super) fn standing(&self, at: usize) -> Standing {
        self.all[at].standing
    }

    /// Returns each member's incarnation, if it has reported one.
    pub(super) fn incarnations(&self) -> impl Iterator<Item = Option<Incarnation>> {
        (0..self.all.len()).map(|at| self.admission.incarnation(at))
    }

    /// Returns true if member `one` may vote on a lease that member `other` has.
    pub(super) fn are_acquainted(&self, one: usize, other: usize) -> bool {
        self.admission.are_acquainted(one, other)
    }

    /// Returns the reason why a member does not vote now.
    pub(super) fn why_not(&self, now: Timestamp, at: usize) -> Error {
        let error = self.refusal().or(self.all[at].error.as_ref());
        match error {
            Some(error) => error.clone(),
            None if self.admission.has_answered(at) && !self.admission.is_admitted(at) => {
                let age = self.admission.age(now, at).as_secs();
                let left = self.admission.remaining(now, at).as_secs() + 1;
                let message = format!(
                    "it came back {age} s ago, may have forgotten locks, and votes again in {left} s"
                );
                Error::new(ErrorKind::Unavailable, message)
            }
            None => Error::new(
                ErrorKind::Unavailable,
                "it has not said yet whether it has forgotten locks",
            ),
        }
    }

    /// Returns true for a while after a quarantine. Meanwhile, holders get their leases at the member before
    /// others may ask for these locks. Each locker ends the quarantine by its own measure, which may be later
    /// for the holder.
    pub(super) fn is_reserved(&self, now: Timestamp, at: usize) -> bool {
        self.all[at].reserved_until > now
    }

    /// Returns true if the member votes again after a quarantine that was reported.
    pub(super) fn is_back(&self, at: usize) -> bool {
        let handshake = &self.all[at];
        handshake.standing == Standing::Votes && handshake.announced.is_some()
    }

    /// Returns the reason why this locker may have no lock at all: a server keeps another longest time to
    /// live.
    fn refusal(&self) -> Option<&Error> {
        let errors = self
            .all
            .iter()
            .filter_map(|handshake| handshake.error.as_ref());
        errors.into_iter().find(|error| error.is_config())
    }

    pub(super) fn wake(&self, server: ServerId) -> Option<Timestamp> {
        Some(self.all.get(super::place_of(server))?.wake)
    }
}

/// Events.
impl Handshakes {
    /// Starts the handshakes when the program first wants a lock. Returns true that first time.
    pub(super) fn begin(&mut self, now: Timestamp, key: &LockKey) -> bool {
        let is_first = self.key.is_none();
        if is_first {
            self.key = Some(key.mark());
            self.opens_at = Some(now + OPENING);
        }
        is_first
    }

    /// Handles a new connection. It may lead to another process than before, which started with old data.
    pub(super) fn connected(&mut self, now: Timestamp, at: usize) {
        let handshake = &mut self.all[at];
        (handshake.down, handshake.is_doubtful, handshake.error) = (false, true, None);
        (handshake.under_way, handshake.pace) = (None, Pace::due_at(now));
    }

    pub(super) fn disconnected(&mut self, at: usize, error: Error) {
        let handshake = &mut self.all[at];
        (handshake.down, handshake.under_way, handshake.error) = (true, None, Some(error));
    }

    pub(super) fn entered(&mut self, cx: &Ctx, at: usize, result: Result<Entered, Error>) {
        let differs = |entered: &Entered| self.differs(cx, at, entered);
        let result = result.and_then(|entered| match differs(&entered) {
            Some(error) => Err(error),
            None => Ok(entered),
        });
        let handshake = &mut self.all[at];
        let Some((turn, _)) = handshake.under_way.take() else {
            return;
        };
        match result {
            Ok(entered) => {
                (handshake.is_doubtful, handshake.error) = (false, None);
                handshake.pace = Pace::due_at(cx.now);
                self.admission.saw(cx.now, at, (entered, turn));
            }
            Err(error) => {
                if error.is_config() {
                    self.admission.lost(at);
                }
                handshake.failed(cx, error);
            }
        }
    }

    /// Returns an error if the server keeps another longest time to live than this locker.
    fn differs(&self, cx: &Ctx, at: usize, entered: &Entered) -> Option<Error> {
        let (own, theirs) = (cx.settings.longest_ttl, entered.longest);
        if own.as_millis() == theirs.as_millis() {
            return None;
        }
        let key = self.key.as_ref().map_or("", LockKey::lock);
        let server = at + 1;
        let rule = format!(
            "is {own:?}, but other lockers gave server {server} of the quorum {theirs:?}: all lockers must use the same \
             value. To change it, stop all lockers, wait for the old time, delete the key {key} at every server, and start \
             them with the new value"
        );
        Some(Error::bad_option("longest_ttl", rule))
    }

    /// Reports that all leases stand on the member again.
    pub(super) fn readmit(&mut self, cx: &mut Ctx, at: usize) {
        self.all[at].announced = None;
        let server = u32::try_from(at + 1).unwrap_or(u32::MAX);
        let event = LeaseEvent::Readmitted { server };
        cx.push(Output::Notice { event });
    }

    /// Handles a request that arrived too late and did nothing. Its reply told the server's time, so the next
    /// request should arrive in time.
    pub(super) fn was_late(&mut self, cx: &Ctx, at: usize) {
        let handshake = &mut self.all[at];
        handshake.under_way = None;
        if handshake.pace.failures == 0 {
            handshake.pace.failures = 1;
        } else {
            handshake.failed(cx, Failure::late().into_error());
        }
    }

    /// Handles that the member is no longer in this incarnation.
    pub(super) fn forgot(&mut self, now: Timestamp, at: usize, incarnation: Incarnation) {
        if self.admission.incarnation(at) == Some(incarnation) {
            self.admission.lost(at);
            let handshake = &mut self.all[at];
            (handshake.error, handshake.pace) = (None, Pace::due_at(now));
        }
    }

    /// Handles the timer: the pending request has timed out, or it is only time to look again.
    pub(super) fn time(&mut self, cx: &mut Ctx, members: &mut Members, at: usize) {
        let handshake = &mut self.all[at];
        handshake.set_timer(cx, at, Timestamp::NEVER);
        if handshake
            .under_way
            .is_some_and(|(_, give_up)| give_up <= cx.now)
        {
            handshake.under_way = None;
            let error = members.give_up_entry(at).unwrap_or_else(Error::no_answer);
            handshake.failed(cx, error);
        }
    }
}

/// Decisions.
impl Handshakes {
    /// Asks the members that must be asked. Returns the members whose standing has changed.
    pub(super) fn settle(&mut self, cx: &mut Ctx, members: &mut Members) -> Vec<usize> {
        let Some(key) = self.key.clone() else {
            return Vec::new();
        };
        self.admission.settle(cx.now);
        for at in 0..self.all.len() {
            // A member that does not answer cannot make others known to each other.
            if self.all[at].fails() && !self.admission.to_tell(at).is_empty() {
                self.admission.lost(at);
            }
        }
        self.admission.settle(cx.now);
        let is_refused = self.refusal().is_some();
        let is_any_to_come = || (0..self.all.len()).any(|at| self.is_to_come(at));
        let opens = |at: &Timestamp| *at > cx.now && !is_refused && is_any_to_come();
        self.opens_at = self.opens_at.filter(opens);
        let mut changed = Vec::new();
        for at in 0..self.all.len() {
            self.ask(cx, members, (at, &key));
            let standing = match self.opens_at {
                _ if is_refused => Standing::Out,
                Some(_) => Standing::Open,
                None => self.judge(at),
            };
            if std::mem::replace(&mut self.all[at].standing, standing) != standing {
                changed.push(at);
                if self.is_back(at) {
                    self.all[at].reserved_until = cx.now + cx.settings.longest_ttl / 2;
                }
            }
            let voting = self.admission.incarnation(at);
            let voting = voting.filter(|_| standing == Standing::Votes);
            let check = voting.map(|incarnation| Enter {
                key: key.clone(),
                incarnation,
                terms: None,
            });
            members.check_before_acquiring(at, check);
            if standing == Standing::Out && !is_refused {
                self.announce(cx, at);
            }
            self.set_timer(cx, at);
        }
        changed
    }

    fn judge(&self, at: usize) -> Standing {
        let handshake = &self.all[at];
        if self.admission.votes(at) {
            return Standing::Votes;
        }
        if !self.admission.has_answered(at) {
            return match handshake.error {
                Some(_) => Standing::Out,
                None => Standing::Open,
            };
        }
        // Pending reports of others may admit the member; and too few reports decide nothing.
        let is_open = |other| {
            let is_awaited =
                !self.admission.has_answered(other) || self.admission.is_to_be_heard(other);
            is_awaited && self.all[other].error.is_none()
        };
        let are_few = self.admission.answered() < super::members::majority(self.all.len());
        if are_few || self.admission.is_admitted(at) || (0..self.all.len()).any(is_open) {
            Standing::Open
        } else {
            Standing::Out
        }
    }

    /// Returns true if the member may be admitted soon, or may soon know the others.
    fn is_to_come(&self, at: usize) -> bool {
        let is_open = self.judge(at) == Standing::Open;
        !self.all[at].fails() && (is_open || !self.admission.to_tell(at).is_empty())
    }

    fn is_wanted(&self, at: usize) -> bool {
        let is_unknown = !self.admission.has_answered(at) || self.all[at].is_doubtful;
        if self.refusal().is_some() {
            return is_unknown;
        }
        is_unknown
            || self.admission.is_to_be_heard(at)
            || self.admission.is_to_be_asked(at)
            || !self.admission.to_tell(at).is_empty()
            || !self.admission.to_watch(at).is_empty()
            || !self.admission.to_forget(at).is_empty()
    }

    fn ask(&mut self, cx: &Ctx, members: &mut Members, (at, key): (usize, &LockKey)) {
        let handshake = &self.all[at];
        let may = !handshake.down && handshake.under_way.is_none() && handshake.pace.next <= cx.now;
        if !may || !self.is_wanted(at) {
            return;
        }
        self.named += 1;
        let name = u128::from(cx.settings.client.0) << 64 | u128::from(self.named);
        let mut terms = Terms {
            longest: cx.settings.longest_ttl,
            remember: Vec::new(),
            watch: Vec::new(),
            forget: Vec::new(),
        };
        // A locker that is refused must not let members vote or set their longest time to live.
        if self.refusal().is_none() {
            terms.remember = self.admission.to_tell(at);
            terms.watch = self.admission.to_watch(at);
            terms.forget = self.admission.to_forget(at);
        }
        let enter = Enter {
            key: key.clone(),
            incarnation: Incarnation(name),
            terms: Some(terms),
        };
        let give_up = cx.now + cx.settings.command_timeout;
        self.all[at].under_way = Some((self.admission.next_turn(), give_up));
        members.enter(cx, at, (enter, give_up));
    }

    /// Reports a quarantine to the program, once.
    fn announce(&mut self, cx: &mut Ctx, at: usize) {
        let incarnation = self.admission.incarnation(at);
        let server = u32::try_from(at + 1).unwrap_or(u32::MAX);
        let is_known = self.admission.answered() >= super::members::majority(self.all.len());
        let handshake = &mut self.all[at];
        if incarnation.is_some() && incarnation != handshake.announced && is_known {
            handshake.announced = incarnation;
            let remaining = self.admission.remaining(cx.now, at);
            let event = LeaseEvent::Quarantined { server, remaining };
            cx.push(Output::Notice { event });
        }
    }

    fn set_timer(&mut self, cx: &mut Ctx, at: usize) {
        let (wanted, is_back) = (self.is_wanted(at), self.is_back(at));
        let handshake = &mut self.all[at];
        let wake = match handshake.under_way {
            Some((_, give_up)) => give_up,
            None if handshake.down => Timestamp::NEVER,
            None if wanted => handshake.pace.next,
            None => Timestamp::NEVER,
        };
        let is_admitted = self.admission.is_admitted(at);
        let ripe = self.admission.ripe_at(at);
        let wake = if is_admitted { wake } else { wake.min(ripe) };
        let wake = if is_back {
            wake.min(cx.now + LOOK)
        } else {
            wake
        };
        let opens_at = self.opens_at.unwrap_or(Timestamp::NEVER);
        handshake.set_timer(cx, at, wake.min(opens_at));
    }
}

impl Handshake {
    /// Returns true if no reply is expected from the member for now.
    fn fails(&self) -> bool {
        self.down || self.error.is_some()
    }

    fn failed(&mut self, cx: &Ctx, error: Error) {
        let seed = cx.seed();
        let between = retry(cx.settings.command_timeout);
        self.pace.back_off(cx.now, between, seed);
        self.error = Some(error);
    }

    fn set_timer(&mut self, cx: &mut Ctx, at: usize, wake: Timestamp) {
        let server = ServerId(u32::try_from(at).unwrap_or(u32::MAX));
        cx.timers.set(Timed::Server(server), &mut self.wake, wake);
    }
}
