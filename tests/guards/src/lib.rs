//! The conformance suite, which every guard must pass, and the databases and stores of the tests.

pub mod conformance;
pub mod mariadb;
pub mod moto;
pub mod postgres;
mod server;
pub mod sql;

/// The programs in the README are compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The programs in the page about other locks are compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from.md")]
struct ComingFrom;
