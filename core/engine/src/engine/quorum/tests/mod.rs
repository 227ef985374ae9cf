//! Quorums on in-memory servers.

mod acquire;
mod bounds;
mod host;
mod later;
mod least;
mod line;
mod members;
mod most;
mod passed;
mod quarantine;
mod queries;
mod renewals;
mod stats;
mod tenure;
mod wait;
mod world;
