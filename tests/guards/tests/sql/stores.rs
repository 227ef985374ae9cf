//! Registers in a database, for the conformance suite.

use std::time::Duration;

use leasehold::fence::statements::{MYSQL, check_resource};
use leasehold::{Error, ErrorKind, FencingToken, fence};
use leasehold_guard_tests::conformance::Guarded;
use leasehold_guard_tests::sql::{self, Db, is_race};
use sqlx::Pool;

pub(crate) const HISTORY: &str = "SELECT token, value FROM history WHERE resource = ? ORDER BY id";

/// Registers behind the fence table: each write is in the transaction of its check.
pub(crate) struct Fenced<DB: Db> {
    pub(crate) pool: Pool<DB>,
    /// The statement that opens transactions, if not the default.
    pub(crate) begin: Option<&'static str>,
}

/// Registers behind the fence table through its bare statements, as another client runs them.
pub(crate) struct Bare<DB: Db>(pub(crate) Fenced<DB>);

/// Registers with a token in their own row.
pub(crate) struct OwnRow<DB: Db>(pub(crate) Pool<DB>);

/// Wrong on purpose: the check in one transaction, and the write in another.
pub(crate) struct CheckedBefore<DB: Db>(pub(crate) Pool<DB>);

pub(crate) async fn rows<DB: Db>(
    pool: &Pool<DB>,
    statement: &str,
    resource: &str,
) -> Vec<Vec<u64>> {
    let mut connection = pool.acquire().await.expect("the pool has a connection");
    let rows = DB::rows(&mut connection, statement, &[resource.into()]).await;
    let rows = rows.expect("readable tables").into_iter();
    rows.map(|row| row.into_iter().map(i64::cast_unsigned).collect())
        .collect()
}

pub(crate) async fn history<DB: Db>(pool: &Pool<DB>, resource: &str) -> Vec<(u64, u64)> {
    let rows = rows(pool, HISTORY, resource).await;
    rows.into_iter().map(|row| (row[0], row[1])).collect()
}

async fn register<DB: Db>(pool: &Pool<DB>, table: &str, resource: &str) -> Option<u64> {
    let value = format!("SELECT value FROM {table} WHERE resource = ?");
    Some(rows(pool, &value, resource).await.first()?[0])
}

fn store(error: sqlx::Error) -> Error {
    let kind = if is_race(&error) {
        ErrorKind::Unavailable
    } else {
        ErrorKind::Store
    };
    Error::with_source(kind, error.to_string(), error)
}

/// Repeats a write that failed because of another transaction.
async fn while_raced<F>(attempt: impl Fn() -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    loop {
        match attempt().await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            result => return result,
        }
    }
}

impl<DB: Db> Fenced<DB> {
    async fn attempt(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        let pool = &self.pool;
        let mut tx = match self.begin {
            Some(begin) => fence::sql::begin_with(pool, begin, resource, token).await?,
            None => fence::sql::begin(pool, resource, token).await?,
        };
        sql::write::<DB>(&mut tx, resource, token.get(), value)
            .await
            .map_err(store)?;
        tx.commit().await
    }
}

impl<DB: Db> Guarded for Fenced<DB> {
    async fn write(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        while_raced(|| self.attempt(resource, token, value)).await
    }

    async fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        let history = history(&self.pool, resource).await;
        let count = "SELECT writes FROM register WHERE resource = ?";
        let count = rows(&self.pool, count, resource).await[0][0];
        // Catches a fence that checks but does not serialize writers.
        assert_eq!(count, history.len() as u64, "counts were lost: {history:?}");
        history
    }

    async fn read(&self, resource: &str) -> Option<u64> {
        register(&self.pool, "register", resource).await
    }
}

impl<DB: Db> Bare<DB> {
    async fn attempt(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        let statements = DB::STATEMENTS;
        check_resource(resource)?;
        let mut tx = self.0.pool.begin_with(DB::BEGIN).await.map_err(store)?;
        let number = token.get();
        let twice = [resource.into(), number.into(), number.into()];
        let count = if statements == MYSQL { 3 } else { 2 };
        let done = DB::run(&mut tx, statements.take, &twice[..count]).await;
        done.map_err(store)?;
        let highest = DB::rows(&mut tx, statements.highest, &[resource.into()]).await;
        let highest = highest.map_err(store)?[0][0];
        statements.check(resource, token, highest)?;
        let written = sql::write::<DB>(&mut tx, resource, number, value).await;
        written.map_err(store)?;
        tx.commit().await.map_err(store)
    }
}

impl<DB: Db> Guarded for Bare<DB> {
    async fn write(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        while_raced(|| self.attempt(resource, token, value)).await
    }

    async fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        self.0.history(resource).await
    }

    async fn read(&self, resource: &str) -> Option<u64> {
        self.0.read(resource).await
    }
}

impl<DB: Db> OwnRow<DB> {
    async fn attempt(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        let number = token.get();
        let mut tx = self.0.begin_with(DB::BEGIN).await.map_err(store)?;
        let update = "UPDATE own SET value = ?, fence = ? WHERE resource = ? AND fence <= ?";
        let args = [value.into(), number.into(), resource.into(), number.into()];
        let written = DB::run(&mut tx, update, &args).await.map_err(store)?;
        let highest = format!("SELECT fence FROM own WHERE resource = ?{}", DB::CURRENT);
        let highest = DB::rows(&mut tx, &highest, &[resource.into()])
            .await
            .map_err(store)?;
        let highest = highest.first().map(|row| row[0]);
        if !fence::sql::accepted(written, resource, token, highest)? {
            tx.rollback().await.map_err(store)?;
            return self.insert(resource).await;
        }
        let note = "INSERT INTO history (resource, token, value) VALUES (?, ?, ?)";
        let args = [resource.into(), number.into(), value.into()];
        DB::run(&mut tx, note, &args).await.map_err(store)?;
        tx.commit().await.map_err(store)
    }

    /// Makes the row, without a token, and asks for another attempt. This is a transaction of its own: in
    /// MySQL, many that look for a row and then insert it are one deadlock after the other.
    async fn insert(&self, resource: &str) -> Result<(), Error> {
        let mut connection = self.0.acquire().await.map_err(store)?;
        let insert = "INSERT INTO own (resource, value, fence) VALUES (?, 0, 0)";
        DB::run(&mut connection, insert, &[resource.into()])
            .await
            .map_err(store)?;
        Err(Error::new(
            ErrorKind::Unavailable,
            "the row was just inserted",
        ))
    }
}

impl<DB: Db> Guarded for OwnRow<DB> {
    async fn write(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        loop {
            match self.attempt(resource, token, value).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                // Another writer made the row first.
                Err(error) if error.kind() == ErrorKind::Store && is_duplicate(&error) => {}
                result => return result,
            }
        }
    }

    async fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        history(&self.0, resource).await
    }

    async fn read(&self, resource: &str) -> Option<u64> {
        register(&self.0, "own", resource).await
    }
}

fn is_duplicate(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    let source: Option<&dyn sqlx::error::DatabaseError> =
        source.and_then(sqlx::Error::as_database_error);
    source.is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

impl<DB: Db> CheckedBefore<DB> {
    async fn attempt(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        let mut tx = self.0.begin_with(DB::BEGIN).await.map_err(store)?;
        let written = sql::write::<DB>(&mut tx, resource, token.get(), value).await;
        written.map_err(store)?;
        tx.commit().await.map_err(store)
    }
}

impl<DB: Db> Guarded for CheckedBefore<DB> {
    async fn write(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        let checked = fence::sql::begin(&self.0, resource, token).await?;
        checked.commit().await?;
        // The smaller the token of a race, the later its write, so a write that greater ones overtake is certain.
        let gap = Duration::from_millis(20_u64.saturating_sub(token.get()));
        tokio::time::sleep(gap).await;
        loop {
            tokio::task::yield_now().await;
            match self.attempt(resource, token, value).await {
                Err(error) if error.kind() == ErrorKind::Unavailable || is_duplicate(&error) => {}
                done => return done,
            }
        }
    }

    async fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        history(&self.0, resource).await
    }

    async fn read(&self, resource: &str) -> Option<u64> {
        register(&self.0, "register", resource).await
    }
}
