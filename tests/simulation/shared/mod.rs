//! Shared names: semaphores, quotas, and locks for readers and writers, beside ordinary locks.
//!
//! Each of these is checked after each command that a server executes, or each input of a host:
//! 1. A permit is granted only if it fits: with all living permits, it takes at most the capacity in force. By
//!    the world's time this holds for the permits that are valid at hosts. So a writer is never beside a
//!    reader or another writer. Afterwards the capacity may shrink below what is held: a shrink drains, and
//!    ends no permit.
//! 2. No slot is valid for two holders. A permit gets the lowest free slots. The tokens of a slot grow.
//! 3. A command changes only the permit of its own lease. A resize changes only the capacity.
//! 4. A reader's generation is the token of the last writer before it.
//! 5. Nobody is admitted before a live waiter that asked earlier: see [`line`](crate::line).
//! 6. In the end nothing is held, nobody waits, and all of each name can be taken.
//!
//! A loss of data excuses what it destroys: the capacity, the generation and the permits of its name.

mod audit;
mod checks;
mod plan;
mod programs;
mod sabotage;
mod starvation;
mod state;

pub(crate) use checks::{Known, acts, claim_of};
pub(crate) use plan::Kind;
pub(crate) use state::{Change, Permit};
