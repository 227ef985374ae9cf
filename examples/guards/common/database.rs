//! The SQL database of an example: a server, a file, or this program's memory.

use std::error::Error;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use leasehold::FencingToken;
use leasehold::fence::sql;
use leasehold_examples::cli::Outcome;
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlPoolOptions};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Connection};
use tokio::time::{sleep, timeout};

/// How long to wait for a connection, or for another writer.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Each process has a pool of its own.
const CONNECTIONS: u32 = 5;

/// Connections to one database.
#[derive(Clone, Debug)]
pub enum Database {
    /// Of a server.
    Postgres(PgPool),
    /// Of a server: MySQL, or MariaDB.
    MySql(MySqlPool),
    /// A file, or this program's memory.
    Sqlite(SqlitePool),
}

/// Does the same with any of the pools, whose types differ.
macro_rules! with_pool {
    ($database:expr, $pool:ident => $work:expr) => {
        match $database {
            Database::Postgres($pool) => $work,
            Database::MySql($pool) => $work,
            Database::Sqlite($pool) => $work,
        }
    };
}

/// Does the same in a transaction of any pool, with the fence if there is one: a guarded transaction
/// is of another type.
macro_rules! with_transaction {
    ($database:expr, $fence:expr, $transaction:ident => $work:expr) => {
        with_pool!($database, pool => match $fence {
            Some((resource, token)) => {
                let mut $transaction = sql::begin(pool, resource, token).await?;
                let done = $work;
                $transaction.commit().await?;
                done
            }
            None => {
                let mut $transaction = pool.begin().await?;
                let done = $work;
                $transaction.commit().await?;
                done
            }
        })
    };
}

/// The resource that a transaction is about, and the token that it comes with.
pub type Fence<'a> = (&'a str, FencingToken);

impl Database {
    /// Connects to what the URL names: `postgres://…`, `mysql://…` or `sqlite:…`.
    pub async fn connect(url: &str) -> Outcome<Self> {
        let scheme = url.split(':').next().unwrap_or_default();
        let connected = match scheme {
            "postgres" | "postgresql" => {
                answers::<PgConnection>(url).await?;
                let options = PgPoolOptions::new().max_connections(CONNECTIONS);
                let pool = options.acquire_timeout(PATIENCE).connect(url).await;
                pool.map(Self::Postgres)
            }
            "mysql" | "mariadb" => {
                answers::<MySqlConnection>(url).await?;
                let options = MySqlPoolOptions::new().max_connections(CONNECTIONS);
                let pool = options.acquire_timeout(PATIENCE).connect(url).await;
                pool.map(Self::MySql)
            }
            "sqlite" => sqlite(url).await.map(Self::Sqlite),
            _ => {
                let forms = "postgres://user:password@host/name, mysql://… or sqlite:file";
                return Err(format!("the --database is a URL such as {forms}").into());
            }
        };
        connected.map_err(failure)
    }

    /// What it is, for people; without the URL, which may hold a password.
    pub fn shown(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "Postgres",
            Self::MySql(_) => "MySQL or MariaDB",
            Self::Sqlite(_) => "SQLite",
        }
    }

    /// Makes the table in which the guard keeps its tokens, if it is not there.
    pub async fn prepare_guard(&self) -> Outcome {
        with_pool!(self, pool => sql::create_table(pool).await?);
        Ok(())
    }

    /// Runs the statements in one transaction: guarded, if there is a fence. A refusal is a
    /// [`leasehold::Error`] with the details.
    pub async fn write(&self, fence: Option<Fence<'_>>, statements: &[String]) -> Outcome {
        with_transaction!(self, fence, transaction => {
            for statement in statements {
                // The programs here write these texts themselves; values of users would be bound.
                sqlx::query(AssertSqlSafe(statement.clone())).execute(&mut *transaction).await?;
            }
        });
        Ok(())
    }

    /// Reads one number. With a fence the guard sees the token, so that from then on nobody with an older
    /// one can change what was read.
    pub async fn read(&self, fence: Option<Fence<'_>>, query: String) -> Outcome<i64> {
        Ok(with_transaction!(self, fence, transaction => {
            sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut *transaction).await?
        }))
    }

    /// Waits until all connections are back in the pool, also those of dropped work. A table that is still
    /// being made could not be removed.
    pub async fn settled(&self) {
        let all_are_back = async {
            while with_pool!(self, pool => pool.size() as usize > pool.num_idle()) {
                sleep(LOOK_AGAIN).await;
            }
        };
        // If it is not done in time, the removal is tried all the same.
        let _ = timeout(PATIENCE, all_are_back).await;
    }

    /// Removes a resource from the guard's table. Only for one that nobody will ever write again.
    pub async fn forget(&self, resource: &str) -> Outcome {
        let forget = format!("DELETE FROM leasehold_fence WHERE resource = '{resource}'");
        self.write(None, &[forget]).await
    }

    /// Closes all connections.
    pub async fn close(&self) {
        with_pool!(self, pool => pool.close().await);
    }
}

/// Connects once, for a good error: a pool tries again and again, and says only that the time is over.
async fn answers<C: Connection>(url: &str) -> Outcome {
    match timeout(PATIENCE, C::connect(url)).await {
        Ok(Ok(connection)) => Ok(connection.close().await?),
        Ok(Err(error)) => Err(failure(error)),
        Err(_) => Err(format!("the database did not answer within {PATIENCE:?}").into()),
    }
}

fn failure(error: sqlx::Error) -> Box<dyn Error + Send + Sync> {
    match error {
        // The error may show the part that could not be read, which may be a password.
        sqlx::Error::Configuration(_) => "the --database is no valid URL".into(),
        error => format!("the database: {error}").into(),
    }
}

async fn sqlite(url: &str) -> Result<SqlitePool, sqlx::Error> {
    let in_memory = url.contains(":memory:");
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .busy_timeout(PATIENCE)
        .journal_mode(if in_memory {
            SqliteJournalMode::Memory
        } else {
            SqliteJournalMode::Wal
        });
    let pool = SqlitePoolOptions::new()
        .acquire_timeout(PATIENCE)
        // Every connection to memory is a database of its own, which ends with the connection.
        .max_connections(if in_memory { 1 } else { CONNECTIONS });
    pool.connect_with(options).await
}

/// A folder for a database's file, which is removed when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one.
    pub fn new() -> Outcome<Self> {
        let name = format!("leasehold-example-sqlite-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| format!("the folder {} cannot be made: {error}", path.display()))?;
        Ok(Self(path))
    }

    /// The URL of a file in it.
    pub fn url(&self) -> String {
        format!("sqlite:{}", self.0.join("example.db").display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // An error is ignored: it is a temporary file that nobody needs.
        let _ = fs::remove_dir_all(&self.0);
    }
}
