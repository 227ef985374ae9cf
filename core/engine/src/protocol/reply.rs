//! What the store says.

use std::num::NonZeroU32;

use super::claim::LeaseId;
use super::ops::{Entered, Inspected};
use crate::error::Error;
use crate::name::Name;
use crate::time::ServerTime;
use crate::token::FencingToken;

/// The reply to a batch: one reply per command, in order, and the server's time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchReply {
    /// The server's clock while it executed the batch; `None` if nothing made it look, which is so
    /// for releases only.
    pub time: Option<ServerTime>,
    /// A reply, or the server's refusal, for each command. One failing command does not fail its
    /// neighbours.
    pub replies: Vec<Result<Reply, Error>>,
}

/// What came of one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The batch came past a `not_after` of its operations; nothing was done.
    Late,
    /// The server is not in the incarnation any more that the batch meant; nothing was done from the
    /// [`Enter`](super::Enter) on that checked it, which is the first of a batch that has one.
    Forgot,
    /// Acquire: the lock is this lease's.
    Held(Grant),
    /// Acquire: somebody else has it.
    Busy {
        /// When the holder's lease ends unless it is renewed.
        expires: ServerTime,
        /// The place in line, 1 for who is next; `None` for a claim that does not wait.
        place: Option<NonZeroU32>,
    },
    /// Acquire: its own owner has it at another client, and it may ask again to take it over; it has
    /// no place in line.
    Reclaimable {
        /// The tenure that it may name.
        token: FencingToken,
    },
    /// Acquire: somebody else has it, and the line is full.
    Full {
        /// How many wait.
        waiting: u32,
    },
    /// Renew: extended.
    Renewed {
        /// When the lock expires now.
        expires: ServerTime,
    },
    /// Acquire, renew: done, but for this reason it does not count. No store says so: it is what
    /// [`Durability::weigh`](super::Durability::weigh) makes of a reply.
    NotDurable(Error),
    /// Renew, release, force-release: the lock is free.
    Gone,
    /// Renew, release, force-release: the lock is somebody else's.
    Taken,
    /// Release, force-release: freed.
    Released,
    /// Release: freed, and next in line was another lease of the same client. It has the lock for its
    /// time to live, and gets no push.
    HandedOver {
        /// Who has it.
        lease: LeaseId,
        /// What it has.
        grant: Grant,
    },
    /// Enter: the server is still in the incarnation that was meant.
    Intact,
    /// Enter.
    Entered(Entered),
    /// Inspect.
    Inspected(Inspected),
    /// List.
    Listed {
        /// Where to go on; `None` at the end.
        cursor: Option<u64>,
        /// Names of locks that are held; a walk may come to a name more than once.
        names: Vec<Name>,
    },
}

/// What the store gives to a claim.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The tenure's token.
    pub token: FencingToken,
    /// When the lock expires unless it is renewed.
    pub expires: ServerTime,
}
