//! Everything in which one server and a quorum differ, as seen by the front that both share.

use std::fmt::Debug;
use std::time::Duration;

use super::Renewal;
use super::callers::{Caller, Callers};
use super::handle::Handles;
use super::tenure::Tenure;
use super::who::Who;
use crate::engine::ctx::Ctx;
use crate::engine::io::{CallId, LockSpec};
use crate::error::Error;
use crate::event::LossReason;
use crate::protocol::{HalfId, Reclaim};
use crate::time::Timestamp;
use crate::token::FencingToken;

/// A way to get, keep and give back locks: by attempts at one server, or by the votes of several. It owns what all
/// locks share: the time, the outputs, the timers and the servers.
pub(crate) trait Backend: Debug + Sized {
    /// A contender as the store knows it.
    type Lease: Lease;
    type Acquiring: Acquisition;
    type Keeping: Keeping;
    /// The releases that the store has not confirmed yet.
    type Releases: Releases;

    fn cx(&mut self) -> &mut Ctx;

    /// An error if a lock with these options cannot be had from it.
    fn check(&self, spec: &LockSpec) -> Result<(), Error>;

    /// An error if a renewal cannot be for so long.
    fn check_ttl(&self, ttl: Duration) -> Result<(), Error>;

    /// Asks for a lock. Returns also what follows at once.
    fn begin(
        &mut self,
        who: Who,
        caller: Caller,
        reclaims: Reclaim,
    ) -> (Self::Lease, Self::Acquiring, Next<Self>);

    /// A further call waits for the same acquisition.
    fn join(&mut self, lease: &mut Self::Lease, acquiring: &mut Self::Acquiring, caller: Caller);

    /// The time of a contender's timer has come.
    fn time(&mut self, lease: &mut Self::Lease, phase: &mut Phase<Self>) -> Next<Self>;

    /// The lock was taken with this token, which proves that releases of earlier tenures are over in the store.
    fn confirm(
        &mut self,
        ended: (&mut Self::Releases, &mut Handles),
        who: &Who,
        token: FencingToken,
    );

    /// The tenure begins, and its callers were told. Returns why it is over already, if it is.
    fn held(
        &mut self,
        lease: &mut Self::Lease,
        acquiring: &mut Self::Acquiring,
        tenure: &mut Tenure<Self::Keeping>,
    ) -> Option<LossReason>;

    /// True if a reader that begins now is told that the lock is held.
    fn is_held(lease: &Self::Lease, tenure: &Tenure<Self::Keeping>, now: Timestamp) -> bool;

    /// When a tenure needs attention.
    fn wake_at(lease: &Self::Lease, tenure: &Tenure<Self::Keeping>) -> Timestamp;

    /// The program asks for a renewal.
    fn renew(
        &mut self,
        lease: &mut Self::Lease,
        tenure: &mut Tenure<Self::Keeping>,
        renewal: Renewal,
    );

    /// Nobody wants the lock any more. Whatever the store may have given is given back.
    fn give_up(&mut self, releases: &mut Self::Releases, of: (Self::Lease, Box<Self::Acquiring>));

    /// The tenure was lost. Whatever the store may still have of it is given back.
    fn lost(
        &mut self,
        releases: &mut Self::Releases,
        of: (Self::Lease, Tenure<Self::Keeping>),
        reason: LossReason,
    );

    /// The holder gives the tenure up. The handle waits for the end of the release.
    fn release(
        &mut self,
        releases: (&mut Self::Releases, &mut Handles),
        of: (Self::Lease, Tenure<Self::Keeping>),
        call: Option<CallId>,
    );
}

/// How far a contender is.
#[derive(Debug)]
pub(crate) enum Phase<B: Backend> {
    /// In a box, because most contenders of a large locker hold their lock.
    Acquiring(Box<B::Acquiring>),
    Held(Tenure<B::Keeping>),
}

/// The step that follows from what was done with a contender.
#[derive(Debug)]
pub(crate) enum Next<B: Backend> {
    Stay,
    /// It has the lock from now on.
    Hold(Tenure<B::Keeping>),
    /// Nobody wants the lock any more.
    Leave,
    /// Its tenure is over, and not because its holder gave it up.
    Lose(LossReason),
}

impl<B: Backend> Next<B> {
    /// The next step of a contender whose callers are these: it leaves once nobody wants the lock any more.
    pub(crate) fn of(callers: &Callers) -> Self {
        if callers.is_empty() {
            Self::Leave
        } else {
            Self::Stay
        }
    }
}

/// A contender as the store knows it.
pub(crate) trait Lease: Debug {
    fn who(&self) -> &Who;
}

/// An acquisition that is under way.
pub(crate) trait Acquisition: Debug {
    fn callers(&mut self) -> &mut Callers;

    /// When it needs attention.
    fn wake_at(&self) -> Timestamp;
}

/// A tenure's renewals.
pub(crate) trait Keeping: Debug {
    /// A call does not wait for a renewal any more.
    fn cancel_renewal(&mut self, call: CallId);

    /// Takes out all calls that wait for a renewal.
    fn take_renewals(&mut self) -> Vec<CallId>;
}

/// Releases that the store has not confirmed yet.
pub(crate) trait Releases: Debug + Default {
    fn contains(&self, id: HalfId) -> bool;

    fn len(&self) -> usize;

    fn wake(&self, id: HalfId) -> Option<Timestamp>;
}
