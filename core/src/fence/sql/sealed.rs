//! What the databases differ in.

use std::future::Future;

use sqlx::error::DatabaseError;

use super::failure::Class;
use super::shape::Shape;
use crate::token::FencingToken;

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
    /// Makes the fence table.
    const CREATE_FENCE: &'static str;

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

    /// Marks the transaction, where it has no name to be known by.
    fn mark_fence(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Whether the transaction is still the one that was marked, or has this name.
    fn fence_is_marked(
        connection: &mut Self::Connection,
        transaction: i64,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// Makes a rollback succeed after the transaction has ended, where it fails without one.
    fn open_for_rollback(connection: &mut Self::Connection) -> impl Future<Output = ()> + Send;

    /// Lets nobody else change the table's shape during the transaction, where that is possible.
    fn lock_fence_shape(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Looks at the fence table.
    fn fence_shape(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<Shape>> + Send;

    /// Runs a statement without arguments.
    fn change_fence_table(
        connection: &mut Self::Connection,
        statement: &'static str,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Forgets statements that were prepared for a table of another shape.
    fn forget_fence_statements(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = ()> + Send;

    /// What an error of the database means.
    fn fence_error(error: &(dyn DatabaseError + 'static)) -> Class;
}
