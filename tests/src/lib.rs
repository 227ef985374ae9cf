//! Servers, proxies and processes for the tests.
//!
//! Everything here listens on 127.0.0.1 only, on a port that is free at the moment, and ends when its value
//! is dropped. On any failure it panics with a message that names the cause. It uses neither `fred` nor
//! `leasehold`, except [`next_event`], so a test never trusts the code that it tests.
//!
//! - [`RedisServer`]: a real `redis-server` that you can pause, killed and restarted
//! - [`RedisCluster`]: servers that share the slots, with or without replicas
//! - [`RedisService`]: a primary, replicas and sentinels
//! - [`Authority`]: a CA, and certificates for servers and clients
//! - [`Admin`] and [`Monitor`]: a plain connection to inspect and change a server
//! - [`Tenure`]: the holder of a lock, as stored in its key
//! - [`Proxy`]: a TCP proxy that loses, delays and cuts
//! - [`FakeServer`]: a server with canned replies
//! - [`Child`]: a program that the test can pause and kill
//! - [`eventually`], [`next_event`], [`within`] and [`unique_name`]
//! - [`Random`]: random numbers that follow from a seed
//! - [`Stopwatch`]: measures time without the pauses of the machine

mod certificates;
mod child;
mod fake_server;
#[cfg(test)]
mod imports;
mod ports;
mod process;
mod proxy;
mod random;
mod redis_cluster;
mod redis_server;
mod redis_service;
mod resp;
mod stopwatch;
mod stored;
mod wait;

pub use certificates::{Authority, Pair};
pub use child::{Child, contenders, spawn_mixed};
pub use fake_server::FakeServer;
pub use proxy::{Direction, Mode, Proxy};
pub use random::{Random, mix};
pub use redis_cluster::RedisCluster;
pub use redis_server::{RedisConfig, RedisServer};
pub use redis_service::RedisService;
pub use resp::{Admin, Monitor, Resp};
pub use stopwatch::{Stopwatch, crowding, stalled_between, steady, within};
pub use stored::Tenure;
pub use wait::{Condition, eventually, next_event, unique_name};
