//! The lock script on a real `redis-server` against its model, [`leasehold_engine::MemoryServer`].
//!
//! - [`property`]: random sequences of batches, pauses and an administrator's doings run on both,
//!   which must give the same replies and be left with the same keys; and models that are wrong
//!   on purpose, which the same comparison must find out
//! - [`twice`]: on the model, everything is delivered twice
//! - [`refusals`], [`line_refusals`], [`line`] and [`keys`]: what the model cannot do, such as
//!   foreign values, half of a line, replicas and users without a right
//!
//! `LEASEHOLD_CASES` sets the number of random sequences, `LEASEHOLD_SEED` which they are.

mod branches;
mod compare;
mod keys;
mod line;
mod line_refusals;
mod marks;
mod model;
mod property;
mod real;
mod refusals;
mod samples;
mod sequence;
mod twice;
