//! What the databases differ in.

use std::future::Future;

use leasehold_engine::FencingToken;
use sqlx::error::DatabaseError;

use super::failure::Class;

/// What was found in a resource's row.
#[derive(Copy, Clone, Debug)]
pub struct Taken {
    /// The token that is there now.
    pub highest: i64,
    /// What the server calls the transaction; 0 where a savepoint marks it.
    pub transaction: i64,
}

/// Only for the databases of this crate.
pub trait Sealed: sqlx::Database {
    /// Opens a transaction in the default isolation level.
    const BEGIN_FENCED: &'static str;
    /// Creates the fence table.
    const CREATE_FENCE: &'static str;
    /// Marks the transaction, where it has no name to be known by: every end of it takes its savepoints with it,
    /// whatever begins afterwards.
    const MARK_FENCE: Option<&'static str> = Some(include_str!("mark.sql"));
    /// Makes a rollback succeed after the transaction has ended, where it fails without one.
    const OPEN_AFTER_FENCE: Option<&'static str> = None;

    /// Whether a statement may open a transaction.
    fn may_begin(_statement: &str) -> bool {
        true
    }

    /// Takes the resource's row for the rest of the transaction, writes the token to it unless a
    /// greater one is there, and reads what is there now.
    fn take_fence(
        connection: &mut Self::Connection,
        resource: &str,
        token: FencingToken,
    ) -> impl Future<Output = sqlx::Result<Taken>> + Send;

    /// Runs a statement without arguments.
    fn run_for_fence(
        connection: &mut Self::Connection,
        statement: &'static str,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Whether the transaction is still the one that was marked, or has this name.
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

    /// Whether the error says that the mark is gone.
    fn fence_mark_is_gone(_error: &sqlx::Error) -> bool {
        false
    }

    /// Describes what has the fence table's name, one row if there is anything: `None` for a fence
    /// table. Nobody else changes it during the transaction, where that can be prevented.
    fn fence_shape(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<Vec<Option<String>>>> + Send;

    /// Forgets statements that were prepared for a table of another shape, where the server does not.
    fn forget_fence_statements(
        _connection: &mut Self::Connection,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// What an error of the database means.
    fn fence_error(error: &(dyn DatabaseError + 'static)) -> Class;
}
