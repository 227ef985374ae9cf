//! The guard of Redis keys with the client redis-rs: the suite in `redis/`.

#[path = "redis/main.rs"]
mod suite;
