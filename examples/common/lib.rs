//! What the example programs share.

pub mod cli;
pub mod processes;
pub mod screen;
pub mod server;
pub mod shop;
