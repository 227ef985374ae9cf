//! The lock script on a real `redis-server` against its model, [`leasehold_engine::MemoryServer`].
//!
//! - [`property`]: random sequences of batches, pauses and acts of an administrator run on both. Both must
//!   give the same replies and end with the same keys. The same comparison must catch models that are wrong
//!   on purpose.
//! - [`twice`]: on the model, everything is delivered twice.
//! - [`refusals`], [`line_refusals`], [`line`] and [`keys`]: cases that the model cannot have, such as
//!   foreign values, half of a line, replicas and users without a right.
//! - [`common`]: cases that random sequences seldom bring to the script's common paths.
//!
//! `LEASEHOLD_CASES` sets the number of random sequences, `LEASEHOLD_SEED` their seed.

mod branches;
mod common;
mod compare;
mod jobs;
mod keys;
mod line;
mod line_refusals;
mod marks;
mod model;
mod pair;
mod property;
mod real;
mod refusals;
mod samples;
mod sequence;
mod shared;
mod twice;
