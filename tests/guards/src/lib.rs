//! What every guard must do, whatever it guards.

pub mod conformance;
pub mod mariadb;
pub mod moto;
pub mod postgres;
mod server;
pub mod sql;
