//! The guards of SQL databases on real servers: one test per database, which starts it once.

#[path = "sql/checks.rs"]
mod checks;
#[path = "sql/ended.rs"]
mod ended;
#[path = "sql/errors.rs"]
mod errors;
#[path = "sql/mariadb.rs"]
mod mariadb;
#[path = "sql/postgres.rs"]
mod postgres;
#[path = "sql/shapes.rs"]
mod shapes;
#[path = "sql/sqlite.rs"]
mod sqlite;
#[path = "sql/stores.rs"]
mod stores;
#[path = "sql/ticks.rs"]
mod ticks;
