//! Releasing a tenure at all members.

use super::Quorum;
use super::calls::Asked;
use super::leased::Leased;
use super::support::Support;
use super::votes::Vote;
use crate::engine::front::{self, Handles, Tenure, Who};
use crate::engine::io::{Answer, CallId};
use crate::engine::table::Table;
use crate::error::Error;
use crate::event::LossReason;
use crate::protocol::{HalfId, LockKey};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// The pending releases.
#[derive(Debug, Default)]
pub(in crate::engine) struct QuorumReleases(Table<HalfId, Box<QuorumRelease>>);

/// A release that too few members have confirmed yet. Each member tries until it succeeds or the lease
/// expires.
#[derive(Debug)]
pub(super) struct QuorumRelease {
    who: Who,
    token: FencingToken,
    call: Option<CallId>,
    /// True if the release keeps the name taken for a while. Then only members that keep it count.
    keeps: bool,
    /// How many members do not have the lease, or keep the name taken.
    free: usize,
    pending: usize,
    error: Option<Error>,
}

impl front::Releases for QuorumReleases {
    fn contains(&self, id: HalfId) -> bool {
        self.0.contains_key(&id)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// The members have the timers.
    fn wake(&self, _: HalfId) -> Option<Timestamp> {
        None
    }
}

impl QuorumReleases {
    pub(super) fn start(
        &mut self,
        env: &mut Quorum,
        handles: &mut Handles,
        release: QuorumRelease,
    ) {
        let id = release.who.id();
        self.0.insert(id, Box::new(release));
        self.step(env, handles, id, |_| {});
    }

    /// Handles a member's reply to a release.
    pub(super) fn landed(
        &mut self,
        env: &mut Quorum,
        handles: &mut Handles,
        (id, result): (HalfId, Result<(), Error>),
    ) {
        self.step(env, handles, id, |release| release.landed(result));
    }

    /// Ends the releases of a lock that a majority has granted anew, even if no member has confirmed them.
    pub(super) fn end_those_of(&mut self, env: &mut Quorum, handles: &mut Handles, key: &LockKey) {
        let majority = env.members.majority();
        let releases = self.0.iter();
        let over = releases.filter(|(_, release)| release.who.spec.key == *key);
        let over: Vec<_> = over.map(|(id, _)| id).collect();
        for id in over {
            self.step(env, handles, id, |release| {
                if release.keeps {
                    // Too few members keep the name, or nobody could have it.
                    release.pending = 0;
                } else {
                    release.free = release.free.max(majority);
                }
            });
        }
    }

    fn step(
        &mut self,
        env: &mut Quorum,
        handles: &mut Handles,
        id: HalfId,
        act: impl FnOnce(&mut QuorumRelease),
    ) {
        let Some(release) = self.0.get_mut(&id) else {
            return;
        };
        act(release);
        if release.ends(env)
            && let Some(release) = self.0.take(&id)
        {
            handles.released(&mut env.cx, release.who.lock, id);
        }
    }
}

impl QuorumRelease {
    pub(super) fn new(
        env: &mut Quorum,
        mut lease: Leased,
        tenure: &Tenure<Support>,
        call: Option<CallId>,
    ) -> Self {
        let keeps = tenure.keeps_until(&lease.who.spec) > env.cx.now;
        let (mut free, mut pending) = (0, 0);
        for at in 0..env.members.len() {
            match lease.votes.get(at) {
                Vote::Has(_) => {
                    let (id, asked) = (lease.id_at(at), Asked::Release(lease.who.id()));
                    env.members.release(&env.cx, at, (asked, id), tenure.began);
                    pending += 1;
                }
                Vote::Asked(_) | Vote::InLine(_) => lease.give_back(env, at),
                Vote::None | Vote::Open | Vote::Leaving | Vote::Busy | Vote::Failed(_) => {
                    free += usize::from(!keeps);
                }
            }
        }
        Self {
            who: lease.who,
            token: tenure.token,
            call,
            keeps,
            free,
            pending,
            error: None,
        }
    }

    fn landed(&mut self, result: Result<(), Error>) {
        self.pending = self.pending.saturating_sub(1);
        match result {
            Err(error) if self.keeps || !error.is_not_held() => self.error = Some(error),
            // A lease that the member no longer has is released, too.
            Ok(()) | Err(_) => self.free += 1,
        }
    }

    /// Returns true if the release is finished, after reporting its end.
    fn ends(&mut self, env: &mut Quorum) -> bool {
        let majority = env.members.majority();
        let (answer, lost_by) = if self.free >= majority {
            (Ok(()), None)
        } else if self.free + self.pending >= majority {
            return false;
        } else {
            let error = self.error.take().unwrap_or_else(Error::no_answer);
            (Err(error), Some(LossReason::Expired))
        };
        self.who.emit_end(&mut env.cx, self.token, lost_by);
        if let Some(call) = self.call {
            env.cx.answer(call, Answer::Release(answer));
        }
        true
    }
}
