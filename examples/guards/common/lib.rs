//! What the examples of the guards share.

pub mod crowd;
pub mod database;
pub mod marketplace;
pub mod page;
pub mod redis;
pub mod stock;
pub mod table;
pub mod trader;
