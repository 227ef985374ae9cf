//! A common interface to the databases for the tests: statements with `?` for their arguments, which are
//! numbers and text, and rows of numbers.

use std::future::Future;

use leasehold::fence::statements::{MYSQL, POSTGRES, SQLITE, Statements};
use sqlx::{AssertSqlSafe, MySql, Pool, Postgres, Sqlite};

/// An argument of a statement.
#[derive(Copy, Clone, Debug)]
pub enum Arg<'a> {
    /// Text.
    Text(&'a str),
    /// A number.
    Number(u64),
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Arg<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// A database.
pub trait Db: leasehold::fence::sql::Database {
    /// The type of a column that numbers its rows.
    const SERIAL: &str;
    /// The `BEGIN` of a transaction that the program opens itself.
    const BEGIN: &str;
    /// A statement that makes a connection see the present tables. SQLite does not look before it drops a
    /// table, and refuses if it remembers a view of that name.
    const LOOK: &str;
    /// The statements that a program runs without the guard's own client.
    const STATEMENTS: Statements;
    /// The suffix of a `SELECT` that must see what was committed last.
    const CURRENT: &str;

    /// Runs a statement and returns how many rows it affected.
    fn run(
        connection: &mut Self::Connection,
        statement: &str,
        args: &[Arg<'_>],
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Returns the rows that a statement finds; all columns must be numbers.
    fn rows(
        connection: &mut Self::Connection,
        statement: &str,
        args: &[Arg<'_>],
    ) -> impl Future<Output = sqlx::Result<Vec<Vec<i64>>>> + Send;
}

macro_rules! db {
    ($db:ty, $statements:expr, $numbered:expr, $serial:expr, $begin:expr, $look:expr, $current:expr) => {
        impl Db for $db {
            const STATEMENTS: Statements = $statements;
            const SERIAL: &str = $serial;
            const BEGIN: &str = $begin;
            const LOOK: &str = $look;
            const CURRENT: &str = $current;

            async fn run(
                connection: &mut Self::Connection,
                statement: &str,
                args: &[Arg<'_>],
            ) -> sqlx::Result<u64> {
                let statement = placeholders(statement, $numbered);
                let mut query = sqlx::query::<$db>(AssertSqlSafe(statement));
                for arg in args {
                    query = match *arg {
                        Arg::Text(text) => query.bind(text),
                        Arg::Number(number) => query.bind(number.cast_signed()),
                    };
                }
                Ok(query.execute(connection).await?.rows_affected())
            }

            async fn rows(
                connection: &mut Self::Connection,
                statement: &str,
                args: &[Arg<'_>],
            ) -> sqlx::Result<Vec<Vec<i64>>> {
                use sqlx::Row;
                let statement = placeholders(statement, $numbered);
                let mut query = sqlx::query::<$db>(AssertSqlSafe(statement));
                for arg in args {
                    query = match *arg {
                        Arg::Text(text) => query.bind(text),
                        Arg::Number(number) => query.bind(number.cast_signed()),
                    };
                }
                let rows = query.fetch_all(connection).await?;
                let numbers = |row: &<$db as sqlx::Database>::Row| {
                    (0..row.len()).map(|column| row.try_get(column)).collect()
                };
                rows.iter().map(numbers).collect()
            }
        }
    };
}

db!(
    Postgres,
    POSTGRES,
    true,
    "BIGSERIAL PRIMARY KEY",
    "BEGIN",
    "SELECT 1",
    ""
);
db!(
    MySql,
    MYSQL,
    false,
    "BIGINT AUTO_INCREMENT PRIMARY KEY",
    "START TRANSACTION",
    "SELECT 1",
    " FOR UPDATE"
);
db!(
    Sqlite,
    SQLITE,
    true,
    "INTEGER PRIMARY KEY AUTOINCREMENT",
    "BEGIN IMMEDIATE",
    "SELECT COUNT(*) FROM sqlite_schema",
    ""
);

fn placeholders(statement: &str, numbered: bool) -> String {
    if !numbered {
        return statement.to_owned();
    }
    let mut parts = statement.split('?');
    let first = parts.next().unwrap_or_default().to_owned();
    (1..).zip(parts).fold(first, |done, (number, part)| {
        format!("{done}${number}{part}")
    })
}

/// Runs [`Db::run`] on a connection of the pool. Panics if it fails.
pub async fn run<DB: Db>(pool: &Pool<DB>, statement: &str) {
    let mut connection = pool.acquire().await.expect("the pool has a connection");
    for statement in [DB::LOOK, statement] {
        if let Err(error) = DB::run(&mut connection, statement, &[]).await {
            panic!("{statement}: {error}");
        }
    }
}

/// Makes three tables: the registers, their history, and rows that hold their own token.
pub async fn create_tables<DB: Db>(pool: &Pool<DB>) {
    let key = "VARCHAR(600) NOT NULL PRIMARY KEY";
    let serial = DB::SERIAL;
    for table in [
        format!("register (resource {key}, value BIGINT NOT NULL, writes BIGINT NOT NULL)"),
        format!("own (resource {key}, value BIGINT NOT NULL, fence BIGINT NOT NULL)"),
        format!(
            "history (id {serial}, resource VARCHAR(600) NOT NULL, token BIGINT NOT NULL, \
             value BIGINT NOT NULL)"
        ),
    ] {
        run(pool, &format!("CREATE TABLE {table}")).await;
    }
    run(pool, "CREATE INDEX history_of ON history (resource, id)").await;
}

/// Writes a value to a register and to the history, and counts the writes. It reads the count and writes it
/// back, which is only correct without concurrent writers.
pub async fn write<DB: Db>(
    connection: &mut DB::Connection,
    resource: &str,
    token: u64,
    value: u64,
) -> sqlx::Result<()> {
    let count = "SELECT writes FROM register WHERE resource = ?";
    let writes = DB::rows(connection, count, &[resource.into()]).await?;
    if let Some(writes) = writes.first() {
        let update = "UPDATE register SET value = ?, writes = ? WHERE resource = ?";
        let writes = writes[0].cast_unsigned() + 1;
        DB::run(
            connection,
            update,
            &[value.into(), writes.into(), resource.into()],
        )
        .await?;
    } else {
        let insert = "INSERT INTO register (resource, value, writes) VALUES (?, ?, 1)";
        DB::run(connection, insert, &[resource.into(), value.into()]).await?;
    }
    let note = "INSERT INTO history (resource, token, value) VALUES (?, ?, ?)";
    DB::run(
        connection,
        note,
        &[resource.into(), token.into(), value.into()],
    )
    .await?;
    Ok(())
}

/// Returns true if the transaction failed only because of others and may run again.
pub fn is_race(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else {
        return false;
    };
    let code = error.code().unwrap_or_default();
    // Serialization failures and deadlocks of Postgres and MySQL, and SQLite's "busy".
    ["40001", "40P01", "1213", "1205", "5", "517"].contains(&&*code)
}
