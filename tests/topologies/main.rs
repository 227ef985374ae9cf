//! Contended handoffs between processes, Rust and JavaScript together, while a cluster's slots move, and
//! while masters are killed or stand still: they go on within a bound, tokens never fall, nobody who waits is
//! forgotten, and a guard refuses every stale write.
//!
//! The long ones: `cargo test -p leasehold-tests --test topologies -- --ignored --nocapture --test-threads=1`

mod cluster;
mod crowd;
