//! What is to be measured, as `cargo xtask bench report` found it on the machine.

use std::time::Duration;

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Plan {
    pub(crate) sides: Vec<Side>,
    /// What is not measured, and why.
    pub(crate) skipped: Vec<String>,
    /// What was typed.
    pub(crate) command: String,
    pub(crate) date: String,
    /// Of the machine and its server.
    pub(crate) versions: Vec<String>,
    /// What `bench guards` printed.
    pub(crate) guards: Option<String>,
    /// Bytes of what a browser or a bundle gets, gzipped.
    pub(crate) sizes: Vec<(String, u64)>,
    pub(crate) rounds: usize,
    pub(crate) warm_up_millis: u64,
    pub(crate) pairs_millis: u64,
    pub(crate) handoff_rounds: usize,
    pub(crate) handoff_millis: u64,
    pub(crate) leases: usize,
    pub(crate) held_seconds: u64,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) language: String,
    /// The side that it is compared with.
    pub(crate) base: String,
    /// The program and its arguments; `{port}` stands for the server's port.
    pub(crate) command: Vec<String>,
    /// Whether it differs from another one only where callers wait.
    pub(crate) waits_only: bool,
}

impl Plan {
    pub(crate) fn held(&self) -> Duration {
        Duration::from_secs(self.held_seconds)
    }
}
