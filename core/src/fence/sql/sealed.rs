//! The differences between the databases.

use std::future::Future;

use leasehold_engine::FencingToken;
use sqlx::error::DatabaseError;

use super::failure::Class;

/// The state of a resource's row after it was taken.
#[derive(Copy, Clone, Debug)]
pub struct Taken {
    /// The token that is stored now.
    pub highest: i64,
    /// The server's number for the transaction; 0 where a savepoint marks it instead.
    pub transaction: i64,
}

/// The sealed part of [`Database`](super::Database).
pub trait Sealed: sqlx::Database {
    /// Opens a transaction in the default isolation level.
    const BEGIN_FENCED: &'static str;
    /// Creates the fence table.
    const CREATE_FENCE: &'static str;
    /// Marks a transaction that has no number, with a savepoint: however the transaction ends, its savepoints
    /// end with it.
    const MARK_FENCE: Option<&'static str> = Some(include_str!("mark.sql"));
    /// A statement that lets sqlx roll back after the transaction has ended, where that fails otherwise.
    const OPEN_AFTER_FENCE: Option<&'static str> = None;

    /// Returns true if the statement may open a transaction.
    fn may_begin(_statement: &str) -> bool {
        true
    }

    /// Locks the resource's row for the rest of the transaction, writes the token unless a greater one is
    /// there, and reads the result.
    fn take_fence(
        connection: &mut Self::Connection,
        resource: &str,
        token: FencingToken,
    ) -> impl Future<Output = sqlx::Result<Taken>> + Send;

    /// Records a completed tick in the row, which the transaction has taken, unless it has this tick or a later
    /// one. Returns the number of rows that it changed.
    fn complete_tick(
        connection: &mut Self::Connection,
        resource: &str,
        tick: i64,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Runs a statement without arguments.
    fn run_for_fence(
        connection: &mut Self::Connection,
        statement: &'static str,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Returns true if the transaction is still the one that was marked or that has this number.
    fn fence_is_marked(
        connection: &mut Self::Connection,
        _transaction: i64,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send {
        async {
            match Self::run_for_fence(connection, include_str!("marked.sql")).await {
                Ok(()) => Ok(true),
                Err(error) if Self::fence_mark_is_gone(&error) => Ok(false),
                Err(error) => Err(error),
            }
        }
    }

    /// Returns true if the error means that the mark is gone.
    fn fence_mark_is_gone(_error: &sqlx::Error) -> bool {
        false
    }

    /// Describes the table with the fence table's name, one row if there is any: `None` for a fence table.
    /// Where it can, it prevents changes to the table during the transaction.
    fn fence_shape(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<Vec<Option<String>>>> + Send;

    /// Discards statements that were prepared for an earlier table, where the server does not do so itself.
    fn forget_fence_statements(
        _connection: &mut Self::Connection,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns the class of the database's error.
    fn fence_error(error: &(dyn DatabaseError + 'static)) -> Class;
}
