#![doc = include_str!("../README.md")]

mod observation;
mod text;

pub use observation::{Change, ChangeKind, Observation};
pub use text::{escaped, without_secrets};
