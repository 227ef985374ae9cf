//! What a quorum does, on servers in memory.

mod acquire;
mod bounds;
mod later;
mod line;
mod members;
mod quarantine;
mod queries;
mod stats;
mod tenure;
mod wait;
mod world;
