//! Servers, proxies and processes for the tests.
//!
//! Everything here listens on 127.0.0.1 only, on a port that is free at the moment, and ends with
//! the value that stands for it. It is test support: whatever goes wrong in it panics with a
//! message that names the cause. Nothing here goes through `fred` or `leasehold`, so that a test
//! never has to trust the thing that it tests.
//!
//! - [`RedisServer`]: a real `redis-server` that can be paused, killed and restarted
//! - [`RedisCluster`]: several of them that share the slots, with replicas or without
//! - [`RedisService`]: a primary, replicas and sentinels
//! - [`Authority`]: a CA, and certificates for servers and clients
//! - [`Admin`] and [`Monitor`]: a plain connection to look at a server and to meddle with it
//! - [`Tenure`]: who has a lock, as its key says
//! - [`Proxy`]: a TCP proxy that loses, delays and cuts
//! - [`FakeServer`]: answers what the test wants a server to answer
//! - [`Child`]: a program that can be paused and killed
//! - [`eventually`], [`next_event`], [`within`] and [`unique_name`]
//! - [`Stopwatch`]: measures the time in which the machine ran

mod certificates;
mod child;
mod fake_server;
#[cfg(test)]
mod imports;
mod ports;
mod process;
mod proxy;
mod redis_cluster;
mod redis_server;
mod redis_service;
mod resp;
mod stopwatch;
mod stored;
mod wait;

pub use certificates::{Authority, Pair};
pub use child::{Child, contenders};
pub use fake_server::FakeServer;
pub use proxy::{Direction, Mode, Proxy};
pub use redis_cluster::RedisCluster;
pub use redis_server::{RedisConfig, RedisServer};
pub use redis_service::RedisService;
pub use resp::{Admin, Monitor, Resp};
pub use stopwatch::{Stopwatch, crowding, stalled_between, steady, within};
pub use stored::Tenure;
pub use wait::{Condition, eventually, next_event, unique_name};
