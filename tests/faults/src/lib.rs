//! Real clients on real servers under random faults, and two judges of what the clients saw.
//!
//! - [`run()`]: rounds of faults, each on servers and clients of its own
//! - [`nemesis`]: injects [`fault`]s, which follow from a seed
//! - [`client`], [`command`] and `client.mjs`: the clients, which record a [`history`]
//! - [`store`]: the guarded store that they write to
//! - [`usage`]: the names as locks, as a semaphore, or for readers and writers
//! - [`checks`], [`shared`] and [`porcupine`]: the judges
//! - [`report`]: the page that shows a run

pub mod checks;
pub mod client;
pub mod command;
pub mod fault;
pub mod fleet;
pub mod history;
pub mod nemesis;
pub mod porcupine;
pub mod report;
mod run;
pub mod shared;
pub mod store;
pub mod topology;
pub mod usage;

pub use run::{Options, Summary, run};
