//! RESP2, independent of every client library: values, an admin connection and a monitor.

mod admin;
mod monitor;
mod value;

pub use admin::Admin;
pub use monitor::Monitor;
pub use value::Resp;
