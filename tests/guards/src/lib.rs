//! What every guard must do, whatever it guards.

pub mod conformance;
