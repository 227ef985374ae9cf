//! The store's replies to a batch.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::claim::LeaseId;
use super::ops::{Admission, Entered, Inspected, YieldRequest};
use super::wire::Fields;
use crate::error::Error;
use crate::name::Name;
use crate::time::ServerTime;
use crate::token::FencingToken;

/// The reply to a batch: one reply per command, in order, and the server's time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchReply {
    /// The server's clock while it executed the batch. `None` if no operation read the clock, which happens
    /// only in batches of releases.
    pub time: Option<ServerTime>,
    /// For each command its reply, or the server's refusal. A command that fails does not affect the others.
    pub replies: Vec<Result<Reply, Error>>,
}

/// The outcome of one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The batch arrived past a `not_after` of its operations. Nothing was done.
    Late,
    /// The server is no longer in the incarnation that the batch expected. The [`Enter`](super::Enter) that
    /// checks it, always the first operation of such a batch, and all operations after it did nothing.
    Forgot,
    /// Acquire, accept: this lease has the lock.
    Held(Grant),
    /// Admit: this lease has a permit.
    Admitted(Grant, Admission),
    /// Admit: the claim's weight is above the capacity, so it can never fit. It has no place in line.
    Excess {
        /// The capacity of the name.
        capacity: u32,
    },
    /// Resize: the name has the capacity.
    Resized {
        /// How often the capacity was set, from 1.
        epoch: u32,
    },
    /// Acquire, admit: somebody else has the lock, or too little of the name is free.
    Busy {
        /// When the holder's lease, or the first one of a shared name, expires unless it is renewed.
        expires: ServerTime,
        /// The place in line, 1 for the next waiter; `None` if the claim does not wait.
        place: Option<NonZeroU32>,
    },
    /// Acquire: the same owner has the lock at another client, and may reclaim it with another request. The
    /// claim has no place in line.
    Reclaimable {
        /// The token of the tenure that the owner may reclaim.
        token: FencingToken,
    },
    /// Acquire, admit: somebody else has the lock, and the line is full.
    Full {
        /// The number of waiters.
        waiting: u32,
    },
    /// Acquire: the claim's tick was completed before. Release: the turn does not have the job any more,
    /// and its tick is completed.
    Completed,
    /// Renew: the lease was extended.
    Renewed {
        /// The new expiry of the lock.
        expires: ServerTime,
    },
    /// Renew: the lease was extended, and its holder has been asked to yield.
    Wanted {
        /// The new expiry of the lock.
        expires: ServerTime,
        /// The request. Its time may have passed.
        request: YieldRequest,
    },
    /// Acquire, accept, renew: done, but the lock has too few copies and so does not count. No store sends this:
    /// [`Durability::weigh`](super::Durability::weigh) makes it of a reply.
    NotDurable(Error),
    /// Renew, release, retire, accept, force-release, ask-yield: nobody has the lock.
    Gone,
    /// Renew, release, retire, accept, force-release, ask-yield: somebody else has the lock.
    Taken,
    /// Ask-yield: the holder's lock has this request, or one that ends no later.
    Asked,
    /// Release, force-release: the lock was freed. Retire: the tenure has ended, and the name stays taken.
    Released,
    /// Release, vacate: the lock or the part of a name was freed and handed to the next waiter, another lease of the
    /// same client. That lease lasts for its full time to live, and gets no push.
    HandedOver {
        /// The lease that has the lock now.
        lease: LeaseId,
        /// The token and expiry of that lease.
        grant: Grant,
        /// The state of a shared name and the slots of that lease; `None` for a lock.
        admission: Option<Arc<Admission>>,
    },
    /// Enter: the server is still in the expected incarnation.
    Intact,
    /// Enter: the state of the server's incarnation.
    Entered(Entered),
    /// Inspect: the holder and the waiters.
    Inspected(Inspected),
    /// List: some names.
    Listed {
        /// The cursor for the next step; `None` at the end.
        cursor: Option<u64>,
        /// Names of held locks. A listing may return a name more than once.
        names: Vec<Name>,
    },
}

/// The token and expiry that the store grants to a claim.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The fencing token of the tenure.
    pub token: FencingToken,
    /// When the lock expires unless it is renewed.
    pub expires: ServerTime,
}

impl Grant {
    /// Reads the next fields of a reply as a grant.
    pub(super) fn read<F: AsRef<[u8]>>(fields: &mut Fields<'_, F>) -> Result<Self, Error> {
        Ok(Self {
            token: fields.token()?,
            expires: fields.millis()?,
        })
    }
}
