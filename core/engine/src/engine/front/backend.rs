//! Everything in which one server and a quorum differ, as seen by the front that both share.

use std::fmt::Debug;
use std::time::Duration;

use super::callers::{Caller, Callers};
use super::contender::{Contender, Next};
use super::handle::Handles;
use super::locks::Locks;
use super::queries::{Queries, Query, Question};
use super::tenure::Tenure;
use super::who::Who;
use super::{Front, Renewal};
use crate::engine::ctx::Ctx;
use crate::engine::io::{CallId, Input, LockSpec};
use crate::engine::stats::Counts;
use crate::engine::timers::Timed;
use crate::error::Error;
use crate::event::{LeaseEvent, LossReason};
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
    type Query: Query<Self>;

    fn cx(&mut self) -> &mut Ctx;

    /// The context, how many things of its own may have a timer, and what each of these is set for.
    fn timers(&mut self) -> (&mut Ctx, usize, impl Fn(Timed) -> Option<Timestamp>);

    /// An error if a lock with these options cannot be had from it.
    fn check(&self, spec: &LockSpec) -> Result<(), Error>;

    /// An error if a renewal cannot be for so long.
    fn check_ttl(&self, ttl: Duration) -> Result<(), Error>;

    /// Asks for a lock. Returns the contender for it, and what follows at once.
    fn begin(
        &mut self,
        who: Who,
        caller: Caller,
        reclaims: Reclaim,
    ) -> (Contender<Self>, Next<Self>);

    /// A further call waits for the same acquisition.
    fn join(&mut self, lease: &mut Self::Lease, acquiring: &mut Self::Acquiring, caller: Caller);

    /// The time of a contender's timer has come.
    fn time(&mut self, contender: &mut Contender<Self>) -> Next<Self>;

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

    /// When the loss of a tenure is emitted unless it is renewed before: somewhat before the deadline.
    fn ends_at(lease: &Self::Lease, tenure: &Tenure<Self::Keeping>) -> Timestamp;

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

    /// Asks a question that concerns no lease of this locker.
    fn ask(&mut self, queries: &mut Queries<Self>, call: CallId, question: Question);

    /// Begins to end what the locker has at the store.
    fn shut_down(&mut self);

    /// True if all is ended that [`shut_down`](Self::shut_down) began.
    fn is_shut_down(&self, locks: &Locks<Self>) -> bool;

    /// True if nothing is under way besides what the front knows of.
    fn is_idle(&self) -> bool;

    /// When it has to be told the time.
    fn next_wake(&self) -> Timestamp;

    /// Whether those who were just answered are likely to ask again.
    fn expects_more(&self) -> bool;

    /// Whether something waits to be sent.
    fn has_unsent(&self) -> bool;

    /// What was counted.
    fn counts(&self) -> Counts;

    /// The drift margin, if it had to be widened.
    fn clock_drift(&self) -> Option<LeaseEvent>;

    /// What the host says of servers, and that time has passed.
    fn input(front: &mut Front<Self>, input: Input);

    /// The time has come for a timer that is no contender's and no query's.
    fn own_time(front: &mut Front<Self>, what: Timed);

    /// Time has passed, before anything else is looked at.
    fn tick(front: &mut Front<Self>);

    /// Takes in what follows from what was just done.
    fn settle(front: &mut Front<Self>);

    /// Hands to the host what waits to be sent.
    fn flush(front: &mut Front<Self>);
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
