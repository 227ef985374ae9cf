//! The guard for MySQL and MariaDB.

use leasehold_engine::FencingToken;
use leasehold_engine::rows::count;
use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{Executor, MySql, MySqlConnection, Row};

use super::codes::{Meaning, meaning, meanings};
use super::failure::Class;
use super::sealed::{Sealed, Taken};
use crate::fence::statements::MYSQL;

const SHAPE: &str = include_str!("mysql/shape.sql");

const HOLD: &str = include_str!("mysql/hold.sql");

const NO_TABLE: u16 = 1146;
const NO_SAVEPOINT: u16 = 1305;

fn number(error: &(dyn DatabaseError + 'static)) -> u16 {
    let error = error.try_downcast_ref::<MySqlDatabaseError>();
    error.map_or(0, MySqlDatabaseError::number)
}

const MEANINGS: &str = include_str!("mysql/codes.txt");

pub(super) static CODES: [Meaning; count(MEANINGS)] = meanings(MEANINGS);

impl Sealed for MySql {
    const BEGIN_FENCED: &'static str = "START TRANSACTION";
    const CREATE_FENCE: &'static str = MYSQL.create;

    async fn take_fence(
        connection: &mut MySqlConnection,
        resource: &str,
        token: FencingToken,
    ) -> sqlx::Result<Taken> {
        let resource = resource.as_bytes();
        let upsert = sqlx::query(MYSQL.take)
            .bind(resource)
            .bind(token)
            .bind(token);
        upsert.execute(&mut *connection).await?;
        // A locking read sees the last commit, whatever the isolation level.
        let rows = sqlx::query(MYSQL.highest).bind(resource);
        match &rows.fetch_all(connection).await?[..] {
            [row] => Ok(Taken {
                highest: row.try_get(0)?,
                transaction: 0,
            }),
            // Two rows: the table has no key. None: the name was truncated to fit.
            _ => Err(sqlx::Error::RowNotFound),
        }
    }

    async fn complete_tick(
        connection: &mut MySqlConnection,
        resource: &str,
        tick: i64,
    ) -> sqlx::Result<u64> {
        let resource = resource.as_bytes();
        let update = sqlx::query(MYSQL.complete)
            .bind(tick)
            .bind(resource)
            .bind(tick);
        Ok(update.execute(connection).await?.rows_affected())
    }

    async fn run_for_fence(
        connection: &mut MySqlConnection,
        statement: &'static str,
    ) -> sqlx::Result<()> {
        connection.execute(statement).await?;
        Ok(())
    }

    fn fence_mark_is_gone(error: &sqlx::Error) -> bool {
        error.as_database_error().map(number) == Some(NO_SAVEPOINT)
    }

    async fn fence_shape(connection: &mut MySqlConnection) -> sqlx::Result<Vec<Option<String>>> {
        // Reading the table in an open transaction prevents changes to it. During a change, what the server
        // reports about it may be inconsistent.
        match Self::run_for_fence(connection, HOLD).await {
            Ok(()) => sqlx::query_scalar(SHAPE).fetch_all(connection).await,
            Err(error) if error.as_database_error().map(number) == Some(NO_TABLE) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn fence_error(error: &(dyn DatabaseError + 'static)) -> Class {
        meaning(&CODES, &number(error).to_string(), error.message())
    }
}
