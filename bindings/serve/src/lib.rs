#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod counts;
mod demo;
mod history;
mod http;
mod json;
mod listen;
mod lock_table;
mod metrics;
mod options;
mod page;
mod poller;
mod scan;
mod schedule;
mod serve;
mod shares;
mod state;
mod tracking;

pub use options::{Error, Findings, Options};
pub use serve::{Serving, serve};
