#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod observation;
mod text;

pub use observation::{Change, ChangeKind, Observation, is_held};
pub use text::{escaped, summary, without_secrets};
