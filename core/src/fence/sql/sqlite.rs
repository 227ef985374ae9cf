//! SQLite.

use sqlx::error::DatabaseError;
use sqlx::{Executor, Row, Sqlite, SqliteConnection};

use super::codes::{Meaning, meaning, meanings};
use super::failure::Class;
use super::sealed::{Sealed, Taken};
use super::shape::Shape;
use crate::fence::statements::SQLITE;
use crate::rows::count;
use crate::token::FencingToken;

/// Every end of the transaction takes its savepoints with it, whatever begins afterwards.
const MARK: &str = include_str!("sqlite/mark.sql");

const MARKED: &str = include_str!("sqlite/marked.sql");

const INSPECT: &str = include_str!("sqlite/inspect.sql");

const MEANINGS: &str = include_str!("sqlite/codes.txt");

pub(super) static CODES: [Meaning; count(MEANINGS)] = meanings(MEANINGS);

impl Sealed for Sqlite {
    /// Takes the right to write at once: a transaction that asks for it after a read is refused
    /// if somebody else has written since.
    const BEGIN_FENCED: &'static str = "BEGIN IMMEDIATE";
    const CREATE_FENCE: &'static str = SQLITE.create;

    /// After another statement sqlx would take the connection for being in a transaction, for good.
    fn may_begin(statement: &str) -> bool {
        let word = statement.trim_start().get(..5);
        word.is_some_and(|word| word.eq_ignore_ascii_case("BEGIN"))
    }

    async fn take_fence(
        connection: &mut SqliteConnection,
        resource: &str,
        token: FencingToken,
    ) -> sqlx::Result<Taken> {
        let upsert = sqlx::query(SQLITE.take).bind(resource).bind(token);
        let row = match upsert.fetch_optional(&mut *connection).await? {
            Some(row) => row,
            None => {
                sqlx::query(SQLITE.highest)
                    .bind(resource)
                    .fetch_one(connection)
                    .await?
            }
        };
        Ok(Taken {
            highest: row.try_get(0)?,
            transaction: 0,
        })
    }

    async fn mark_fence(connection: &mut SqliteConnection) -> sqlx::Result<()> {
        connection.execute(MARK).await?;
        Ok(())
    }

    async fn fence_is_marked(connection: &mut SqliteConnection, _: i64) -> sqlx::Result<bool> {
        match connection.execute(MARKED).await {
            Ok(_) => Ok(true),
            Err(sqlx::Error::Database(error)) if error.message().contains("no such savepoint") => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn open_for_rollback(connection: &mut SqliteConnection) {
        // After a rollback that failed sqlx would take the connection for being in a transaction,
        // for good. If this fails, the program has opened one.
        connection.execute("BEGIN").await.ok();
    }

    async fn lock_fence_shape(_: &mut SqliteConnection) -> sqlx::Result<()> {
        Ok(()) // BEGIN IMMEDIATE did.
    }

    async fn fence_shape(connection: &mut SqliteConnection) -> sqlx::Result<Shape> {
        let row = sqlx::query(INSPECT).fetch_optional(connection).await?;
        let Some(row) = row else {
            return Ok(Shape::Missing);
        };
        // Only a column's affinity counts here: lengths and sizes are not looked at by SQLite, so
        // that there is nothing to migrate.
        Ok(Shape::found(
            row.try_get("wrong")?,
            row.try_get("strange")?,
            None,
        ))
    }

    async fn change_fence_table(
        connection: &mut SqliteConnection,
        statement: &'static str,
    ) -> sqlx::Result<()> {
        sqlx::query(statement)
            .persistent(false)
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn forget_fence_statements(_: &mut SqliteConnection) {
        // SQLite prepares them anew by itself.
    }

    fn fence_error(error: &(dyn DatabaseError + 'static)) -> Class {
        let code = error.code().and_then(|code| code.parse::<u32>().ok());
        // The lower byte is the primary code.
        let primary = code.unwrap_or_default() & 0xff;
        meaning(&CODES, &primary.to_string(), error.message())
    }
}
