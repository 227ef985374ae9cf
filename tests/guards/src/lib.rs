//! The conformance suite, which every guard must pass, and the databases and stores of the tests.

pub mod conformance;
pub mod mariadb;
pub mod moto;
pub mod postgres;
mod server;
pub mod sql;
