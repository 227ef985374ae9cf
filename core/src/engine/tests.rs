//! The engine, driven by hand: each test is one story of a host, a network and a store.

mod acquire;
mod bounds;
mod burst;
mod cancel;
mod close;
mod cluster;
mod deadline;
mod drift;
mod exclusive;
mod grant;
mod handoff;
mod host;
mod leave;
mod line;
mod link;
mod network;
mod push;
mod query;
mod reclaim;
mod release;
mod renew_for;
mod share;
mod shutdown;
mod tenure;
mod unreachable;
mod view;
