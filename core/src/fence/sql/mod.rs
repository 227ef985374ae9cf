//! Guards of SQL databases.
