//! The interface between a locker's front and its store: one server or a quorum implements it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::Renewal;
use super::callers::{Caller, Callers};
use super::handle::Handles;
use super::tenure::Tenure;
use super::who::Who;
use crate::engine::ctx::Ctx;
use crate::engine::io::CallId;
use crate::engine::spec::LockSpec;
use crate::error::Error;
use crate::event::LossReason;
use crate::protocol::{Admission, HalfId, Reclaim};
use crate::ticket::Passed;
use crate::time::Timestamp;
use crate::token::FencingToken;

/// Acquires, renews and releases locks: by attempts at one server, or by the votes of several. An
/// implementation owns what all locks share: the time, the outputs, the timers and the servers.
pub(crate) trait Backend: Debug + Sized {
    /// A contender in the form that this backend tracks.
    type Lease: Lease;
    type Acquiring: Acquisition;
    type Keeping: Keeping;
    /// The releases that the store has not confirmed yet.
    type Releases: Releases;

    fn cx(&mut self) -> &mut Ctx;

    /// Returns an error if this backend cannot serve a lock with these options.
    fn check(&self, spec: &LockSpec) -> Result<(), Error>;

    /// Returns an error if a lease of this backend cannot be renewed for this time to live.
    fn check_ttl(&self, ttl: Duration) -> Result<(), Error>;

    /// Returns an error if this backend cannot pass on or accept a tenure of a lock with these options.
    fn check_passing(&self, spec: &LockSpec) -> Result<(), Error>;

    /// Starts an acquisition, which may accept a tenure that was passed on. Also returns the contender's next step.
    fn begin(
        &mut self,
        who: Who,
        caller: Caller,
        takes: (Reclaim, Option<Box<Passed>>),
    ) -> (Self::Lease, Self::Acquiring, Next<Self>);

    /// Adds a call to an acquisition that is in progress.
    fn join(&mut self, lease: &mut Self::Lease, acquiring: &mut Self::Acquiring, caller: Caller);

    /// Handles a contender's timer.
    fn time(&mut self, lease: &mut Self::Lease, phase: &mut Phase<Self>) -> Next<Self>;

    /// Ends the releases that an acquisition with this token confirms: the token proves that the store has
    /// ended all earlier tenures of the handle, unless the name is shared.
    fn confirm(
        &mut self,
        ended: (&mut Self::Releases, &mut Handles),
        who: &Who,
        token: FencingToken,
    );

    /// Starts a tenure whose callers have been answered. Returns the reason if the tenure is already lost.
    fn held(
        &mut self,
        lease: &mut Self::Lease,
        acquiring: &mut Self::Acquiring,
        tenure: &mut Tenure<Self::Keeping>,
    ) -> Option<LossReason>;

    /// True if a reader that starts now sees the lock as held.
    fn is_held(lease: &Self::Lease, tenure: &Tenure<Self::Keeping>, now: Timestamp) -> bool;

    /// Returns the time of a tenure's next timer.
    fn wake_at(lease: &Self::Lease, tenure: &Tenure<Self::Keeping>) -> Timestamp;

    /// Starts a renewal that the program asked for.
    fn renew(
        &mut self,
        lease: &mut Self::Lease,
        tenure: &mut Tenure<Self::Keeping>,
        renewal: Renewal,
    );

    /// Returns a tenure as its holder passes it on. Fails if the store's clock has to be known and is not.
    fn passed(&self, lease: &Self::Lease, tenure: &Tenure<Self::Keeping>) -> Result<Passed, Error>;

    /// Ends a tenure that was passed on. Gives nothing back.
    fn pass(&mut self, of: (Self::Lease, Tenure<Self::Keeping>));

    /// Ends an acquisition that has no callers left. Gives back whatever the store may have granted.
    fn give_up(&mut self, releases: &mut Self::Releases, of: (Self::Lease, Box<Self::Acquiring>));

    /// Ends a lost tenure. Gives back whatever the store may still keep of it.
    fn lost(
        &mut self,
        releases: &mut Self::Releases,
        of: (Self::Lease, Tenure<Self::Keeping>),
        reason: LossReason,
    );

    /// Releases a tenure for its holder. The handle stays open until the release ends.
    fn release(
        &mut self,
        releases: (&mut Self::Releases, &mut Handles),
        of: (Self::Lease, Tenure<Self::Keeping>),
        call: Option<CallId>,
    );
}

/// The phase of a contender: acquiring or holding.
#[derive(Debug)]
pub(crate) enum Phase<B: Backend> {
    /// Boxed, because most contenders of a large locker hold their lock.
    Acquiring(Box<B::Acquiring>),
    Held(Tenure<B::Keeping>),
}

/// The next step of a contender after an action.
#[derive(Debug)]
pub(crate) enum Next<B: Backend> {
    Stay,
    /// The contender holds the lock from now on.
    Hold(Tenure<B::Keeping>),
    /// No caller wants the lock any more.
    Leave,
    /// The tenure ended, and its holder did not release it.
    Lose(LossReason),
}

impl<B: Backend> Next<B> {
    /// Returns the next step of an acquisition with these callers: it ends once no caller is left.
    pub(crate) fn of(callers: &Callers) -> Self {
        if callers.is_empty() {
            Self::Leave
        } else {
            Self::Stay
        }
    }
}

/// A contender in the form that a backend tracks.
pub(crate) trait Lease: Debug {
    fn who(&self) -> &Who;
}

/// An acquisition in progress.
pub(crate) trait Acquisition: Debug {
    fn callers(&mut self) -> &mut Callers;

    /// Returns the time of its next timer.
    fn wake_at(&self) -> Timestamp;

    /// Returns the state of a shared name that gave it a part.
    fn admission(&self) -> Option<Arc<Admission>> {
        None
    }
}

/// The renewals of a tenure.
pub(crate) trait Keeping: Debug {
    /// Removes a call that no longer waits for its renewal.
    fn cancel_renewal(&mut self, call: CallId);

    /// Removes and returns all calls that wait for a renewal.
    fn take_renewals(&mut self) -> Vec<CallId>;
}

/// The releases that the store has not confirmed yet.
pub(crate) trait Releases: Debug + Default {
    fn contains(&self, id: HalfId) -> bool;

    fn len(&self) -> usize;

    fn wake(&self, id: HalfId) -> Option<Timestamp>;
}
