//! The steps that only members of a quorum do, and the promises of leases that several members back.

mod losses;
mod rolling;
pub(crate) mod seized;
pub(crate) mod votes;
