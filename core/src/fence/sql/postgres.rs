//! The guard for Postgres.

use leasehold_engine::FencingToken;
use leasehold_engine::rows::count;
use sqlx::error::DatabaseError;
use sqlx::{Connection, Executor, PgConnection, Postgres, Row};

use super::codes::{Meaning, meaning, meanings};
use super::failure::Class;
use super::sealed::{Sealed, Taken};
use crate::fence::statements::POSTGRES;

/// Serializes programs that create the table at once: even `IF NOT EXISTS` fails in such a race. The number
/// is "leasehld" in ASCII.
const CREATE_LOCK: &str = include_str!("postgres/lock.sql");

/// Reads the transaction's number. It has one because it wrote the fence row.
const MARKED: &str = include_str!("postgres/marked.sql");

const SHAPE: &str = include_str!("postgres/shape.sql");

const MEANINGS: &str = include_str!("postgres/codes.txt");

pub(super) static CODES: [Meaning; count(MEANINGS)] = meanings(MEANINGS);

impl Sealed for Postgres {
    const BEGIN_FENCED: &'static str = "BEGIN";
    const CREATE_FENCE: &'static str = POSTGRES.create;
    /// No mark: the transaction is known by its number.
    const MARK_FENCE: Option<&'static str> = None;

    async fn take_fence(
        connection: &mut PgConnection,
        resource: &str,
        token: FencingToken,
    ) -> sqlx::Result<Taken> {
        let upsert = sqlx::query(POSTGRES.take).bind(resource).bind(token);
        if let Some(row) = upsert.fetch_optional(&mut *connection).await? {
            return Ok(Taken {
                highest: row.try_get(0)?,
                transaction: row.try_get(1)?,
            });
        }
        // The row is locked, although nothing was written to it.
        let highest = sqlx::query(POSTGRES.highest).bind(resource);
        Ok(Taken {
            highest: highest.fetch_one(connection).await?.try_get(0)?,
            transaction: 0,
        })
    }

    async fn complete_tick(
        connection: &mut PgConnection,
        resource: &str,
        tick: i64,
    ) -> sqlx::Result<u64> {
        let update = sqlx::query(POSTGRES.complete).bind(tick).bind(resource);
        Ok(update.execute(connection).await?.rows_affected())
    }

    async fn run_for_fence(
        connection: &mut PgConnection,
        statement: &'static str,
    ) -> sqlx::Result<()> {
        connection.execute(statement).await?;
        Ok(())
    }

    async fn fence_is_marked(
        connection: &mut PgConnection,
        transaction: i64,
    ) -> sqlx::Result<bool> {
        let now: i64 = sqlx::query_scalar(MARKED).fetch_one(connection).await?;
        Ok(now == transaction)
    }

    async fn fence_shape(connection: &mut PgConnection) -> sqlx::Result<Vec<Option<String>>> {
        Self::run_for_fence(connection, CREATE_LOCK).await?;
        sqlx::query_scalar(SHAPE).fetch_all(connection).await
    }

    async fn forget_fence_statements(connection: &mut PgConnection) {
        // After the table was created anew the server refuses statements prepared before. If clearing fails,
        // the next statement fails too.
        connection.clear_cached_statements().await.ok();
    }

    fn fence_error(error: &(dyn DatabaseError + 'static)) -> Class {
        let code = error.code().unwrap_or_default();
        meaning(&CODES, &code, error.message())
    }
}
