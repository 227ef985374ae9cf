//! MySQL and MariaDB.

use sqlx::error::DatabaseError;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{Executor, MySql, MySqlConnection, Row};

use super::codes::{Meaning, meaning, meanings};
use super::failure::Class;
use super::sealed::{Sealed, Taken};
use super::shape::Shape;
use crate::fence::statements::MYSQL;
use crate::rows::count;
use crate::token::FencingToken;

/// Every end of the transaction takes its savepoints with it, whatever begins afterwards.
const MARK: &str = include_str!("mysql/mark.sql");

const MARKED: &str = include_str!("mysql/marked.sql");

/// Bytes, because most collations here take different names for the same.
const MIGRATE: &str = include_str!("mysql/migrate.sql");

const INSPECT: &str = include_str!("mysql/inspect.sql");

const HOLD: &str = include_str!("mysql/hold.sql");

const TOO_LONG: &str = include_str!("mysql/too_long.sql");

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
        // A locking read sees what was committed last, whatever the isolation level.
        let rows = sqlx::query(MYSQL.highest).bind(resource);
        match &rows.fetch_all(connection).await?[..] {
            [row] => Ok(Taken {
                highest: row.try_get(0)?,
                transaction: 0,
            }),
            // Two: it has no key. None: the name was cut to fit.
            _ => Err(sqlx::Error::RowNotFound),
        }
    }

    async fn mark_fence(connection: &mut MySqlConnection) -> sqlx::Result<()> {
        connection.execute(MARK).await?;
        Ok(())
    }

    async fn fence_is_marked(connection: &mut MySqlConnection, _: i64) -> sqlx::Result<bool> {
        match connection.execute(MARKED).await {
            Ok(_) => Ok(true),
            Err(error) if error.as_database_error().map(number) == Some(NO_SAVEPOINT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn open_for_rollback(_: &mut MySqlConnection) {
        // It does nothing without one.
    }

    async fn lock_fence_shape(_: &mut MySqlConnection) -> sqlx::Result<()> {
        Ok(()) // The look at it does.
    }

    async fn fence_shape(connection: &mut MySqlConnection) -> sqlx::Result<Shape> {
        // Nobody changes a table that was read in an open transaction; while somebody does, what
        // the server says about it is not of one moment.
        if let Err(error) = sqlx::query(HOLD).execute(&mut *connection).await {
            let number = error.as_database_error().map(number);
            return if number == Some(NO_TABLE) {
                Ok(Shape::Missing)
            } else {
                Err(error)
            };
        }
        let row = sqlx::query(INSPECT)
            .fetch_optional(&mut *connection)
            .await?;
        let Some(row) = row else {
            return Ok(Shape::Missing);
        };
        let older: bool = row.try_get("older")?;
        let migrate = older.then_some(MIGRATE);
        let shape = Shape::found(row.try_get("wrong")?, row.try_get("strange")?, migrate);
        if matches!(shape, Shape::Older(_)) {
            // A server that is not strict would cut them.
            if sqlx::query_scalar(TOO_LONG).fetch_one(connection).await? {
                return Ok(Shape::Alien(
                    "it has resources of more than 512 bytes".to_owned(),
                ));
            }
        }
        Ok(shape)
    }

    async fn change_fence_table(
        connection: &mut MySqlConnection,
        statement: &'static str,
    ) -> sqlx::Result<()> {
        sqlx::query(statement)
            .persistent(false)
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn forget_fence_statements(_: &mut MySqlConnection) {
        // The server prepares them anew by itself.
    }

    fn fence_error(error: &(dyn DatabaseError + 'static)) -> Class {
        meaning(&CODES, &number(error).to_string(), error.message())
    }
}
