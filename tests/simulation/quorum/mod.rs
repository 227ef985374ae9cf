//! What only the members of a quorum do, and what must be true of leases that stand on several of them.

mod losses;
mod rolling;
pub(crate) mod seized;
pub(crate) mod votes;
