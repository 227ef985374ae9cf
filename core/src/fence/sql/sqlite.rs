//! The guard for SQLite.

use leasehold_engine::FencingToken;
use leasehold_engine::rows::count;
use sqlx::error::DatabaseError;
use sqlx::{Executor, Row, Sqlite, SqliteConnection};

use super::codes::{Meaning, meaning, meanings};
use super::failure::Class;
use super::sealed::{Sealed, Taken};
use crate::fence::statements::SQLITE;

const SHAPE: &str = include_str!("sqlite/shape.sql");

const MEANINGS: &str = include_str!("sqlite/codes.txt");

pub(super) static CODES: [Meaning; count(MEANINGS)] = meanings(MEANINGS);

impl Sealed for Sqlite {
    /// Takes the write lock at once: a transaction that asks for it only after a read is refused if somebody
    /// else has written since.
    const BEGIN_FENCED: &'static str = "BEGIN IMMEDIATE";
    const CREATE_FENCE: &'static str = SQLITE.create;
    /// After a failed rollback sqlx would take the connection for being in a transaction forever.
    const OPEN_AFTER_FENCE: Option<&'static str> = Some("BEGIN");

    /// After any other statement sqlx would take the connection for being in a transaction forever.
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

    async fn complete_tick(
        connection: &mut SqliteConnection,
        resource: &str,
        tick: i64,
    ) -> sqlx::Result<u64> {
        let update = sqlx::query(SQLITE.complete)
            .bind(tick)
            .bind(resource)
            .bind(tick);
        Ok(update.execute(connection).await?.rows_affected())
    }

    async fn run_for_fence(
        connection: &mut SqliteConnection,
        statement: &'static str,
    ) -> sqlx::Result<()> {
        connection.execute(statement).await?;
        Ok(())
    }

    fn fence_mark_is_gone(error: &sqlx::Error) -> bool {
        matches!(error, sqlx::Error::Database(error) if error.message().contains("no such savepoint"))
    }

    async fn fence_shape(connection: &mut SqliteConnection) -> sqlx::Result<Vec<Option<String>>> {
        sqlx::query_scalar(SHAPE).fetch_all(connection).await
    }

    fn fence_error(error: &(dyn DatabaseError + 'static)) -> Class {
        let code = error.code().and_then(|code| code.parse::<u32>().ok());
        // The lower byte is the primary code.
        let primary = code.unwrap_or_default() & 0xff;
        meaning(&CODES, &primary.to_string(), error.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_statement_that_begins_a_transaction_may_begin_one() {
        for (statement, may) in [
            ("BEGIN IMMEDIATE", true),
            ("\n begin exclusive", true),
            ("SELECT 1", false),
            ("BEG", false),
            ("", false),
        ] {
            assert_eq!(Sqlite::may_begin(statement), may, "{statement:?}");
        }
    }
}
