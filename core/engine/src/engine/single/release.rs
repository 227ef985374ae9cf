//! Releases: of held locks, and of what abandoned acquisitions may have got.

use std::time::Duration;

use super::acquiring::Acquiring;
use super::attempt::{Attempt, Doubt, Due, Failure, Outcome};
use super::renewing::Renewing;
use super::{Single, line};
use crate::engine::ctx::{Ctx, Serial, Whose};
use crate::engine::front::{self, Handle, Handles, Tenure, Who, lost};
use crate::engine::io::{Answer, CallId, LockId};
use crate::engine::pace::{Pace, retry};
use crate::engine::servers::{Flight, Servers};
use crate::engine::table::Table;
use crate::engine::timers::Timed;
use crate::error::{Error, ErrorKind};
use crate::event::LossReason;
use crate::protocol::{self, Command, HalfId, LeaseId, LockKey, Reply};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// The releases in progress.
#[derive(Debug, Default)]
pub(in crate::engine) struct Releases {
    all: Table<HalfId, Box<Release>>,
    /// Attempts to acquire that a release has a doubt about, and whose replies may still arrive.
    doubted: Table<Serial, HalfId>,
}

/// One release. It is retried until the store confirms it or the lock expires.
#[derive(Debug)]
struct Release {
    who: Who,
    /// The token of the tenure that this release ends, until that end is emitted; the handle waits for it.
    /// `None` after an acquisition that never became a tenure.
    tenure: Option<FencingToken>,
    /// True if this release completes the tick of its turn, until the turn's end is emitted.
    completes: bool,
    /// The token that such an acquisition proposed, which its lock is likely to have.
    proposed: Option<FencingToken>,
    /// The call that waits for the release, and its timeout.
    call: Option<(CallId, Timestamp)>,
    until: Timestamp,
    /// Until when the name stays taken by a tenure that the store has ended.
    keeps_until: Timestamp,
    /// True if the last attempt keeps the name taken. It does not leave the line.
    retires: bool,
    /// How long the store may keep the lock.
    ttl: Duration,
    /// Attempts to acquire that may take the lock again after its release.
    doubt: Option<Doubt>,
    /// The doubted attempt was answered while an attempt to release was in flight. The server may have
    /// executed the release first, since a host with several threads does not always send in order.
    unordered: bool,
    error: Option<Error>,
    attempt: Attempt,
    wake: Timestamp,
}

/// The next step of a release.
#[derive(Copy, Clone, Debug)]
enum Next {
    Stay,
    /// The store freed the lock, or it reports that the lease was lost before, with the reason. Also the time
    /// at which the confirmed attempt left.
    Confirmed(Option<LossReason>, Timestamp),
    /// The lease expired, and the store has not confirmed its release.
    Expired,
}

impl front::Releases for Releases {
    fn contains(&self, id: HalfId) -> bool {
        self.all.contains_key(&id)
    }

    fn len(&self) -> usize {
        self.all.len()
    }

    fn wake(&self, id: HalfId) -> Option<Timestamp> {
        self.all.get(&id).map(|release| release.wake)
    }
}

impl Releases {
    /// Returns the lease that this release gives up.
    pub(super) fn lease(&self, id: HalfId) -> Option<LeaseId> {
        self.all.get(&id).map(|release| release.who.lease)
    }

    /// Returns the releases of the locks that match.
    pub(super) fn of(&self, servers: impl Fn(&LockKey) -> bool) -> Vec<HalfId> {
        let all = self.all.iter();
        let of = all.filter(|(_, release)| servers(&release.who.spec.key));
        of.map(|(id, _)| id).collect()
    }

    /// Frees whatever a lease may have in the store, for up to this time to live. Emits no event.
    pub(super) fn give_back(
        &mut self,
        env: &mut Single,
        who: Who,
        (doubt, ttl): (Option<Doubt>, Duration),
        proposed: Option<FencingToken>,
    ) {
        let last = doubt
            .map_or(env.cx.now, |doubt| doubt.until)
            .max(env.cx.now);
        let mut release = Release::new(&env.cx, who);
        release.ttl = ttl;
        release.until = last + release.lasts();
        release.doubt = doubt;
        release.proposed = proposed;
        self.start(env, release);
    }

    /// Ends an acquisition that no caller wants any more. Frees its lock and its place in line, if the
    /// store may have given it either.
    pub(super) fn give_up(&mut self, env: &mut Single, who: Who, mut acquiring: Acquiring) {
        let doubt = acquiring.attempt.abandon(&mut env.servers);
        if doubt.is_some() || acquiring.may_be_known() {
            let (remains, proposed) = ((doubt, who.spec.ttl), acquiring.proposed());
            self.give_back(env, who, remains, proposed);
        }
    }

    /// Releases a lock for its holder.
    pub(super) fn end_tenure(
        &mut self,
        env: &mut Single,
        (who, tenure): (Who, &Tenure<Renewing>),
        call: Option<CallId>,
    ) {
        let release = Release {
            tenure: Some(tenure.token),
            completes: tenure.completes,
            call: call.map(|call| (call, env.cx.now + env.cx.settings.patience)),
            until: tenure.loss_at(&who.spec),
            keeps_until: tenure.keeps_until(&who.spec),
            ttl: tenure.kept.manual.longest_ttl(&who.spec),
            doubt: tenure.kept.manual.doubt(),
            ..Release::new(&env.cx, who)
        };
        self.start(env, release);
    }

    fn start(&mut self, env: &mut Single, mut release: Release) {
        let id = release.id();
        if let Some(attempt) = release.doubt.and_then(|doubt| doubt.attempt) {
            self.doubted.insert(attempt, id);
        }
        release.ask(env);
        release.settle(&mut env.cx);
        self.all.insert(id, Box::new(release));
    }
}

/// Events of releases.
impl Releases {
    pub(super) fn time(&mut self, env: &mut Single, handles: &mut Handles, id: HalfId) {
        self.step(env, handles, id, Release::time);
    }

    /// Takes in a new connection: a release that failed before is retried at once.
    pub(super) fn retry(&mut self, env: &mut Single, handles: &mut Handles, id: HalfId) {
        let release = self.all.get(&id);
        if release.is_some_and(|release| release.attempt.pace.failures > 0) {
            self.hasten(env, handles, id);
        }
    }

    /// Tries a release now. The lock may have been handed to the abandoned lease, and has to go on to the
    /// next waiter.
    pub(super) fn hasten(&mut self, env: &mut Single, handles: &mut Handles, id: HalfId) {
        self.step(env, handles, id, Release::ask_now);
    }

    pub(super) fn landed(
        &mut self,
        env: &mut Single,
        handles: &mut Handles,
        (id, outcome): (HalfId, Outcome),
    ) {
        self.step(env, handles, id, |release, env| {
            release.landed(env, outcome)
        });
    }

    /// Takes in that the reply to a doubted attempt to acquire has arrived.
    pub(super) fn resolve_doubt(
        &mut self,
        env: &mut Single,
        handles: &mut Handles,
        (attempt, reply): (Serial, &Reply),
    ) {
        let Some(id) = self.doubted.take(&attempt) else {
            return;
        };
        self.step(env, handles, id, |release, env| {
            // Once the store has ended the tenure, the attempt may have joined the line, or taken the lock again.
            // A release that keeps the name taken does not leave the line.
            let is_of = |token| matches!(reply, Reply::Held(grant) if grant.token == token);
            let is_after = release.tenure.is_some_and(|token| !is_of(token));
            release.doubt = (is_after || release.retires).then(|| Doubt::until(env.cx.now));
            // A release put off until the end of the doubt need not wait any longer.
            if release.attempt.is_under_way() {
                release.unordered = true;
                return Next::Stay;
            }
            release.ask_now(env)
        });
    }

    /// Takes in that the handle acquired its lock again with this token, which proves that the earlier tenure
    /// is over in the store: the name is not shared.
    pub(super) fn confirm(
        &mut self,
        env: &mut Single,
        handles: &mut Handles,
        lock: LockId,
        taken: FencingToken,
    ) {
        let Some(id) = handles.get(lock).and_then(Handle::releasing) else {
            return;
        };
        self.step(env, handles, id, |release, _| match &release.tenure {
            // The tick of a turn is completed only if the store says so.
            Some(ended) if *ended < taken && !release.completes => {
                release.attempt.forget_flight();
                // No reply confirms the release, so a doubted attempt to acquire stays in doubt, and the lock
                // that it may have taken still has to be freed.
                Next::Confirmed(None, Timestamp::from_nanos(0))
            }
            _ => Next::Stay,
        });
    }

    fn step(
        &mut self,
        env: &mut Single,
        handles: &mut Handles,
        id: HalfId,
        act: impl FnOnce(&mut Release, &mut Single) -> Next,
    ) {
        let Some(release) = self.all.get_mut(&id) else {
            return;
        };
        let next = act(release, env);
        let cx = &mut env.cx;
        let is_over = match next {
            Next::Stay => false,
            Next::Confirmed(lost_by, sent) => release.confirmed(cx, handles, (lost_by, sent)),
            Next::Expired => release.expired(cx, handles),
        };
        if is_over {
            // An attempt that has not left yet serves no purpose any more.
            release.attempt.abandon(&mut env.servers);
            release.set_timer(cx, Timestamp::NEVER);
            if let Some(attempt) = release.doubt.and_then(|doubt| doubt.attempt) {
                self.doubted.take(&attempt);
            }
            self.all.take(&id);
        } else {
            // The doubt about a tenure that just ended may be over already.
            if let Due::Now = release.attempt.due(cx.now) {
                release.ask(env);
            }
            release.settle(&mut env.cx);
        }
    }
}

impl Release {
    /// Creates a release that no call waits for and that emits no event.
    fn new(cx: &Ctx, who: Who) -> Self {
        Self {
            tenure: None,
            completes: false,
            proposed: None,
            call: None,
            until: cx.now,
            keeps_until: cx.now,
            retires: false,
            ttl: who.spec.ttl,
            doubt: None,
            unordered: false,
            error: None,
            attempt: Attempt::due_at(cx.now),
            wake: Timestamp::NEVER,
            who,
        }
    }

    fn id(&self) -> HalfId {
        self.who.id()
    }

    /// Returns how long the store may keep what nobody releases: a lock, or a place in line that gets
    /// the lock at its very end.
    fn lasts(&self) -> Duration {
        self.ttl.max(line::window(self.who.spec.ttl) * 2)
    }

    fn ask(&mut self, env: &mut Single) {
        let Who { lease, spec, .. } = &self.who;
        let rest = self.keeps_until.since(env.cx.now);
        // A completed tick keeps others away by itself.
        let retires = self.tenure.filter(|_| !rest.is_zero() && !self.completes);
        self.retires = retires.is_some();
        let command = match retires {
            Some(token) => Command::Retire(protocol::Retire {
                key: spec.key.clone(),
                lease: *lease,
                token,
                counter: spec.counter,
                // The name stays taken that long by this clock, too.
                ttl: env
                    .servers
                    .margin(env.servers.of(&spec.key))
                    .outlasting(rest),
            }),
            None if spec.owner.share().is_some() => {
                Command::Vacate(protocol::Vacate(self.request(env)))
            }
            None => Command::Release(self.request(env)),
        };
        let give_up = (env.cx.now + env.cx.settings.command_timeout).min(self.until);
        let whose = Whose::Release(self.id());
        self.attempt.begin(env, whose, command, give_up);
    }

    fn request(&self, env: &Single) -> protocol::Release {
        let Who { lease, spec, .. } = &self.who;
        protocol::Release {
            key: spec.key.clone(),
            claim: spec.claim(env.cx.settings.client, *lease),
            token: self.tenure.or(self.proposed),
            completes: self.completes,
        }
    }

    fn ask_now(&mut self, env: &mut Single) -> Next {
        self.attempt.pace.next = env.cx.now;
        self.time(env)
    }

    fn time(&mut self, env: &mut Single) -> Next {
        let now = env.cx.now;
        if self.until <= now {
            self.error = Some(self.why_unconfirmed(&mut env.servers));
            return Next::Expired;
        }
        if let Some((call, _)) = self.call.take_if(|(_, until)| *until <= now) {
            let error = self.why_unconfirmed(&mut env.servers);
            env.cx.answer(call, Answer::Release(Err(error)));
        }
        match self.attempt.due(now) {
            Due::Late(flight) => {
                let longer = (now + env.cx.settings.command_timeout).min(self.until);
                if let Some(error) = self.attempt.late(&mut env.servers, now, Some(longer)) {
                    self.failed(env, flight, Failure::Unknown(error));
                }
            }
            Due::Now => self.ask(env),
            Due::Later => {}
        }
        Next::Stay
    }

    fn landed(&mut self, env: &mut Single, outcome: Outcome) -> Next {
        let Some(flight) = self.attempt.land(&outcome) else {
            return Next::Stay;
        };
        // An earlier attempt without an answer may have released the lock. If one completed a tick, the store
        // says that it is completed.
        let is_in_doubt = self.attempt.is_in_doubt();
        let is_done = is_in_doubt && !self.completes;
        let unordered = std::mem::take(&mut self.unordered);
        let lost_by = |reason| Next::Confirmed(Some(reason).filter(|_| !is_done), flight.sent);
        let failure = match outcome.result {
            Ok((Reply::Released | Reply::HandedOver { .. }, _)) => {
                return Next::Confirmed(None, flight.sent);
            }
            Ok((Reply::Completed, _)) if is_in_doubt => {
                return Next::Confirmed(None, flight.sent);
            }
            Ok((Reply::Gone | Reply::Taken, _)) if unordered => return self.ask_now(env),
            // The lease does not have the lock. A late attempt to acquire may have joined the line for it.
            Ok((Reply::Gone | Reply::Taken, _)) if self.retires => {
                self.keeps_until = env.cx.now;
                return self.ask_now(env);
            }
            Ok((Reply::Gone, _)) => return lost_by(LossReason::Deleted),
            Ok((Reply::Taken | Reply::Completed, _)) => return lost_by(LossReason::Superseded),
            // Another client put another type of value in the lock's place.
            Err(error) if error.kind() == ErrorKind::WrongType => {
                return lost_by(LossReason::Superseded);
            }
            Ok((Reply::Late, _)) => Failure::late(),
            Ok(_) => Failure::mismatch(),
            Err(error) => Failure::Unknown(error),
        };
        self.failed(env, flight, failure);
        Next::Stay
    }

    fn failed(&mut self, env: &mut Single, flight: Flight, failure: Failure) {
        self.attempt.failed(&mut env.servers, flight, &failure);
        let between = retry(env.cx.settings.command_timeout);
        self.attempt
            .pace
            .back_off(env.cx.now, between, self.who.lease);
        let error = failure.into_error();
        // A permanent refusal is answered at once. The release is retried anyway.
        if let Some((call, _)) = self.call.take_if(|_| !error.is_transient()) {
            env.cx.answer(call, Answer::Release(Err(error.clone())));
        }
        self.error = Some(error);
    }

    /// Returns why the store has not confirmed the release yet.
    fn why_unconfirmed(&self, servers: &mut Servers) -> Error {
        self.error.clone().unwrap_or_else(|| {
            let flight = self.attempt.under_way();
            flight.map_or_else(Error::no_answer, |flight| servers.why_no_answer(flight))
        })
    }

    /// Ends the tenure after the store's confirmation. `lost_by` is the reason if the lease was lost before.
    /// Returns true if nothing is left to do.
    fn confirmed(
        &mut self,
        cx: &mut Ctx,
        handles: &mut Handles,
        (lost_by, sent): (Option<LossReason>, Timestamp),
    ) -> bool {
        // A doubted attempt that may act after this request left may also act after its answer: release once
        // more then. It may also have joined the line for a name that stays taken, where its claim may last.
        let lasts = |doubt: &Doubt| self.retires && doubt.until + self.lasts() > cx.now;
        let doubt = self
            .doubt
            .filter(|doubt| doubt.until > sent || lasts(doubt));
        if let Some(doubt) = doubt {
            self.attempt.pace = Pace::due_at(doubt.until);
            self.until = doubt.until + self.lasts();
        }
        self.end(cx, handles, lost_by);
        if let Some((call, _)) = self.call.take() {
            let result = lost_by.map_or(Ok(()), |reason| Err(lost(reason)));
            cx.answer(call, Answer::Release(result));
        }
        doubt.is_none()
    }

    /// Ends the tenure after its deadline. Returns true if nothing is left to do.
    fn expired(&mut self, cx: &mut Ctx, handles: &mut Handles) -> bool {
        if self.tenure.is_none() {
            return true;
        }
        // A renewal in flight may have extended the lock in the store, and an acquisition attempt without an
        // answer may still join the line.
        let doubt = self.doubt.map(|doubt| doubt.until + self.lasts());
        self.until = (cx.now + self.ttl).max(doubt.unwrap_or(cx.now));
        self.end(cx, handles, Some(LossReason::Expired));
        if let Some((call, _)) = self.call.take() {
            let error = self.error.clone().unwrap_or_else(Error::no_answer);
            cx.answer(call, Answer::Release(Err(error)));
        }
        false
    }

    /// Emits the end of the tenure, so that the handle no longer waits for this release.
    fn end(&mut self, cx: &mut Ctx, handles: &mut Handles, lost_by: Option<LossReason>) {
        let Some(token) = self.tenure.take() else {
            return;
        };
        if std::mem::take(&mut self.completes) && lost_by.is_none() {
            self.who.emit_completed(cx, token);
        }
        self.who.emit_end(cx, token, lost_by);
        handles.released(cx, self.who.lock, self.id());
    }

    fn settle(&mut self, cx: &mut Ctx) {
        let call = self.call.map_or(Timestamp::NEVER, |(_, until)| until);
        self.set_timer(cx, self.attempt.wake_at().min(call).min(self.until));
    }

    fn set_timer(&mut self, cx: &mut Ctx, at: Timestamp) {
        let id = self.id();
        cx.timers.set(Timed::Release(id), &mut self.wake, at);
    }
}
