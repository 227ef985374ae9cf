//! Guards of SQL databases: Postgres, MySQL and MariaDB, SQLite, by [`sqlx`].
//!
//! [`begin`] opens a transaction that has checked the token and holds the resource's row of the
//! *fence table*. The SQL that runs in it is guarded: it takes effect with the check or not at all,
//! and holders of the same resource go one after the other. That is so until the transaction ends,
//! and [some statements end it](#statements-that-end-a-transaction): then the commit is refused.
//!
//! ```
//! # #[cfg(not(feature = "sqlite"))] fn main() {}
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold::{FencingToken, fence};
//!
//! let pool = sqlx::SqlitePool::connect("sqlite::memory:").await?;
//! fence::sql::create_table(&pool).await?;
//! # sqlx::query("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)").execute(&pool).await?;
//!
//! let token = FencingToken::new(34)?; // lease.token()
//! let mut tx = fence::sql::begin(&pool, "account/7", token).await?;
//! sqlx::query("UPDATE account SET balance = balance - 10 WHERE id = 7")
//!     .execute(&mut *tx)
//!     .await?;
//! tx.commit().await?;
//!
//! let stale = fence::sql::begin(&pool, "account/7", FencingToken::new(33)?).await;
//! assert!(stale.unwrap_err().stale_token().is_some());
//! # Ok(()) }
//! ```
//!
//! # What it costs
//!
//! Some statements more in each transaction (two on Postgres, three on SQLite, four on MySQL), and
//! waiting: a holder that was paused
//! *inside* its transaction keeps the row, and the next one waits for it, until the server takes
//! the connection for dead or a limit of the database ends the wait. Set such limits:
//! `idle_in_transaction_session_timeout` and `lock_timeout` in Postgres, `innodb_lock_wait_timeout`
//! and `idle_transaction_timeout` (MariaDB), `busy_timeout` (SQLite). When the process dies its
//! connection closes, and the row is free at once.
//!
//! # Statements that end a transaction
//!
//! A transaction that ends gives its fence row away, and what runs after it on the same connection
//! is in no transaction: it is written at once, whoever holds the resource by then. This happens
//!
//! - by `COMMIT` or `ROLLBACK` as a statement, everywhere
//! - on MySQL and MariaDB, by [statements that commit]: `CREATE`, `ALTER`, `DROP` and other DDL,
//!   `TRUNCATE`, `LOCK TABLES`, `GRANT`, `START TRANSACTION`, `SET autocommit = 1`
//! - on MySQL and MariaDB, by a deadlock, which rolls back; so does a lock that is not got in time, if
//!   `innodb_rollback_on_timeout` is on. Whoever passes over that error goes on without a transaction
//! - on SQLite, by errors that roll back, such as a full disk or `ON CONFLICT ROLLBACK`
//!
//! [`FencedTransaction::commit`] finds out about all of these, and refuses with
//! [`ErrorKind::Config`]. *It comes too late for what is written by then*: that is what was done
//! before a statement that committed, under the fence, and what was done after the end, without it.
//! So run no such statements here, and let an error end the work, as `?` does. On Postgres
//! everything but `COMMIT` and `ROLLBACK` can be part of a transaction, and after an error it takes
//! nothing but its end.
//!
//! [`check`] cannot find out, because the program commits by itself. `SAVEPOINT s` after it and
//! `RELEASE SAVEPOINT s` before the `COMMIT` tell the same: the latter fails.
//!
//! [statements that commit]: https://dev.mysql.com/doc/refman/8.4/en/implicit-commit.html
//!
//! # Isolation levels
//!
//! It is right at each of them. Below `REPEATABLE READ`, a statement after [`begin`] sees all that
//! was committed under earlier tokens. From `REPEATABLE READ` on, the transaction's snapshot is as
//! new as that, because [`begin`] tries again with a new one if the row was taken in between. A
//! later statement or the commit may still fail with a serialization failure or a deadlock, as in
//! any transaction; then run all of it again, from [`begin`] on.
//!
//! # Without this crate, or with another version of it
//!
//! [`statements`] has the statements of each database, for any client and language.
//!
//! # The token in a row of your own
//!
//! Where a resource is one row, the row itself can hold the token, in a column such as
//! `fence BIGINT NOT NULL DEFAULT 0`. Then every write is guarded by its `WHERE` clause, and no
//! fence table is needed:
//!
//! ```sql
//! UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//! ```
//!
//! [`accepted`] tells what it means if no row was affected. Make the row beforehand, with the fence
//! 0, in a transaction of its own; a row that is deleted forgets its token.
//!
//! A [`FencingToken`] can be bound to a statement as it is, and read from a `BIGINT` column.

mod codes;
mod failure;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod retry;
mod sealed;
mod shape;
#[cfg(feature = "sqlite")]
mod sqlite;
mod transaction;

pub use transaction::FencedTransaction;

use leasehold_engine::{Error, ErrorKind, FencingToken};
use sqlx::{Connection, Pool, SqlSafeStr, SqlStr};

use self::failure::Failure;
use self::retry::while_raced;
use self::sealed::Taken;
use super::statements::{self, check_resource};

/// A database with a guard: [`sqlx::Postgres`], [`sqlx::MySql`] or [`sqlx::Sqlite`], each with its
/// feature of this crate.
pub trait Database: sealed::Sealed {}

#[cfg(feature = "mysql")]
impl Database for sqlx::MySql {}
#[cfg(feature = "postgres")]
impl Database for sqlx::Postgres {}
#[cfg(feature = "sqlite")]
impl Database for sqlx::Sqlite {}

/// Creates the fence table. If there is one it changes nothing. (On SQLite it takes the write lock to look.)
///
/// It may be called by several programs at once, at each start of theirs. Only creating the table
/// needs the right to do so. On Postgres the table is created in the first schema of the
/// `search_path`.
///
/// A table that exists must be as [`statements`] creates it, in each column, constraint and index, and without
/// triggers, rules, row security, parents or children. On Postgres its owner must be this user or a role of theirs,
/// the owner of the schema or the database, or a superuser. Any other table is refused, because it may forget a
/// token, take two resources for one, or run its maker's code with this user's rights. This is a look and no lock:
/// whoever may change the table can do so later, and on MySQL triggers are seen only by those who have the right
/// `TRIGGER`. So let nobody make tables there whom you would not trust with the data, and [`begin`] does not look
/// again.
///
/// Errors: [`ErrorKind::Config`] if a table or view of the name is refused; it is left as it is, and the error says
/// what it is and how to make the right one. [`ErrorKind::Auth`], [`ErrorKind::Unavailable`],
/// [`ErrorKind::ReadOnly`] and [`ErrorKind::Store`] as the database says.
///
/// Cancel safe: if the future is dropped, the table is made or not.
///
/// ```
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = sqlx::SqlitePool::connect("sqlite::memory:").await?;
/// leasehold::fence::sql::create_table(&pool).await?;
/// leasehold::fence::sql::create_table(&pool).await?; // It is there: nothing happens.
/// # Ok(()) }
/// ```
pub async fn create_table<DB: Database>(pool: &Pool<DB>) -> Result<(), Error> {
    shape::create(pool).await
}

/// Opens a transaction that has checked the token and holds the resource's fence row: see the
/// [module](self).
///
/// After it, nothing with a smaller token passes for this resource if the transaction is
/// committed; if it is rolled back, nothing has happened. It has the default isolation level of
/// the database ([`begin_with`] takes another), and begins with `BEGIN IMMEDIATE` on SQLite.
///
/// It waits for another transaction that holds the row as long as the database lets it, and for a
/// database that does not answer as long as the network does: put it under a time limit. A deadlock
/// or a serialization failure is tried again, as nothing of the caller's has been done yet; no try
/// begins later than 10 s after the first.
///
/// Errors, none of which leaves a transaction open:
///
/// - [`ErrorKind::StaleToken`] if a greater token was seen
/// - [`ErrorKind::Config`] if the resource is empty, longer than 512 bytes or has a NUL character
///   (Postgres cannot store one), or if the fence table is missing or of another shape: call
///   [`create_table`]
/// - [`ErrorKind::Unavailable`] if the database or a connection of the pool was not to be had, or
///   if others were in the way for too long
/// - [`ErrorKind::Auth`], [`ErrorKind::ReadOnly`], [`ErrorKind::Shutdown`] (the pool is closed)
///   and [`ErrorKind::Store`] as the database says; the source is the [`sqlx::Error`]
///
/// Cancel safe: if the future is dropped, the transaction is rolled back.
///
/// ```
/// # #[cfg(not(all(feature = "sqlite", feature = "native")))] fn main() {}
/// # #[cfg(all(feature = "sqlite", feature = "native"))]
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{Locker, fence};
///
/// # let pool = sqlx::SqlitePool::connect("sqlite::memory:").await?;
/// # fence::sql::create_table(&pool).await?;
/// # sqlx::query("CREATE TABLE account (id INTEGER, balance INTEGER)").execute(&pool).await?;
/// let lease = Locker::in_memory().lock("account/7")?.acquire().await?;
/// let mut tx = fence::sql::begin(&pool, "account/7", lease.token()).await?;
/// sqlx::query("INSERT INTO account (id, balance) VALUES (7, 100)")
///     .execute(&mut *tx)
///     .await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub async fn begin<DB: Database>(
    pool: &Pool<DB>,
    resource: &str,
    token: FencingToken,
) -> Result<FencedTransaction<DB>, Error> {
    begin_with(pool, DB::BEGIN_FENCED, resource, token).await
}

/// [`begin`] with a statement of the caller's to open the transaction:
///
/// - Postgres: `BEGIN ISOLATION LEVEL SERIALIZABLE`
/// - MySQL and MariaDB: `SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION`
/// - SQLite: `BEGIN EXCLUSIVE` (every transaction there is serializable)
///
/// Give it no more than these: if a further statement behind them fails, sqlx may put the
/// connection back into the pool with the transaction open. And no `WITH CONSISTENT SNAPSHOT` on
/// MySQL: what such a transaction reads is older than the row that it waited for.
///
/// Errors as of [`begin`]; [`ErrorKind::Config`] also if the statement does not open a transaction.
///
/// ```
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{FencingToken, fence};
///
/// # let pool = sqlx::SqlitePool::connect("sqlite::memory:").await?;
/// # fence::sql::create_table(&pool).await?;
/// let token = FencingToken::new(34)?;
/// let tx = fence::sql::begin_with(&pool, "BEGIN EXCLUSIVE", "account/7", token).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub async fn begin_with<DB: Database>(
    pool: &Pool<DB>,
    statement: impl SqlSafeStr,
    resource: &str,
    token: FencingToken,
) -> Result<FencedTransaction<DB>, Error> {
    check_resource(resource)?;
    let statement = statement.into_sql_str();
    while_raced(|| attempt(pool, statement.clone(), resource, token)).await
}

/// Checks the token inside a transaction that the program has opened itself, and holds the
/// resource's fence row until its end.
///
/// What the transaction does before and after is guarded, *if an error of this call ends it*: on a
/// refusal roll it back, or drop it, as `?` does. Check before the first read: at
/// `REPEATABLE READ` a snapshot that is older than the check may lack what an earlier holder
/// wrote. (On Postgres the check then fails, if the row changed since; on MySQL only locking reads
/// see it.) On SQLite open the transaction with `BEGIN IMMEDIATE`.
///
/// Errors as of [`begin`], but nothing is tried again: an error that
/// [is transient](Error::is_transient) means that the whole transaction may be. Also
/// [`ErrorKind::Config`] if no transaction is open.
///
/// ```
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{FencingToken, fence};
///
/// # let pool = sqlx::SqlitePool::connect("sqlite::memory:").await?;
/// # fence::sql::create_table(&pool).await?;
/// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
/// fence::sql::check(&mut *tx, "account/7", FencingToken::new(34)?).await?;
/// fence::sql::check(&mut *tx, "account/8", FencingToken::new(12)?).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub async fn check<C>(transaction: &mut C, resource: &str, token: FencingToken) -> Result<(), Error>
where
    C: Connection,
    C::Database: Database + sqlx::Database<Connection = C>,
{
    check_resource(resource)?;
    if !transaction.is_in_transaction() {
        let message = "a fence is checked inside a transaction, and none is open";
        return Err(Error::new(ErrorKind::Config, message));
    }
    match take::<C::Database>(transaction, resource, token).await {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.error),
    }
}

/// What a guarded `UPDATE … WHERE … AND fence <= token` of a row of your own has done: true if it
/// wrote, false if nothing matched for another reason than the token (there is no such row, or
/// another condition of the clause did not hold), and [`ErrorKind::StaleToken`] if a greater token
/// was seen. [`ErrorKind::Config`] if `resource`, which is what the refusal names, is not valid, or
/// if `highest` is more than a token can be.
///
/// `highest` is what the row holds, `None` if there is no row or if it was not looked at because
/// `rows_affected` is not 0. Read it *after* the write and in the same transaction, on MySQL with
/// `FOR UPDATE`, which sees what the write saw.
///
/// ```
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::{FencingToken, fence};
///
/// # let pool = sqlx::SqlitePool::connect("sqlite::memory:").await?;
/// # sqlx::query("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, \
/// #     fence INTEGER NOT NULL DEFAULT 0)").execute(&pool).await?;
/// # sqlx::query("INSERT INTO account (id) VALUES (7)").execute(&pool).await?;
/// let token = FencingToken::new(34)?; // lease.token()
/// let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
/// let update = "UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2";
/// let written = sqlx::query(update)
///     .bind(100)
///     .bind(token)
///     .bind(7)
///     .execute(&mut *tx)
///     .await?
///     .rows_affected();
/// let highest = sqlx::query_scalar("SELECT fence FROM account WHERE id = $1")
///     .bind(7)
///     .fetch_optional(&mut *tx)
///     .await?;
/// let exists = fence::sql::accepted(written, "account/7", token, highest)?;
/// assert!(exists);
/// tx.commit().await?;
/// # Ok(()) }
/// ```
pub fn accepted(
    rows_affected: u64,
    resource: &str,
    token: FencingToken,
    highest: Option<i64>,
) -> Result<bool, Error> {
    check_resource(resource)?;
    if rows_affected > 0 {
        return Ok(true);
    }
    let highest = highest.and_then(|highest| u64::try_from(highest).ok());
    match highest {
        Some(highest) if highest > token.get() => {
            Err(Error::stale(resource, token, FencingToken::new(highest)?))
        }
        _ => Ok(false),
    }
}

async fn attempt<DB: Database>(
    pool: &Pool<DB>,
    statement: SqlStr,
    resource: &str,
    token: FencingToken,
) -> Result<FencedTransaction<DB>, Failure> {
    if !DB::may_begin(statement.as_str()) {
        return Err(Failure::new::<DB>(sqlx::Error::BeginFailed));
    }
    let (pool, resource) = (pool.clone(), resource.to_owned());
    detached::<DB, _>(async move {
        let begun = pool.begin_with(statement).await;
        let mut tx = begun.map_err(Failure::new::<DB>)?;
        match take_and_mark::<DB>(&mut tx, &resource, token).await {
            Ok(name) => Ok(FencedTransaction::new(tx, name)),
            Err(failure) => {
                // Now, not whenever the connection is used again. If it fails the connection is
                // broken, and with it the transaction is gone.
                tx.rollback().await.ok();
                Err(failure)
            }
        }
    })
    .await
}

/// Does work in a task of its own, to its end: sqlx may leave a connection that nobody can use, or
/// in a transaction that nobody ends, if it is dropped half-way.
async fn detached<DB: Database, T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down.
        Err(_) => Err(Failure::new::<DB>(sqlx::Error::WorkerCrashed)),
    }
}

async fn take_and_mark<DB: Database>(
    connection: &mut DB::Connection,
    resource: &str,
    token: FencingToken,
) -> Result<i64, Failure> {
    let name = take::<DB>(connection, resource, token).await?;
    if let Some(mark) = DB::MARK_FENCE {
        let marked = DB::run_for_fence(connection, mark).await;
        marked.map_err(Failure::new::<DB>)?;
    }
    Ok(name)
}

/// What the server calls the transaction.
async fn take<DB: Database>(
    connection: &mut DB::Connection,
    resource: &str,
    token: FencingToken,
) -> Result<i64, Failure> {
    let Taken {
        highest,
        transaction,
    } = match DB::take_fence(connection, resource, token).await {
        Ok(row) => row,
        Err(error) => {
            DB::forget_fence_statements(connection).await;
            return Err(Failure::new::<DB>(error));
        }
    };
    statements::compare(resource, token, highest)?;
    Ok(transaction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).expect("it is a token")
    }

    /// Catches a helper that takes a missing row or an unmet condition for a refusal, or the
    /// other way round.
    #[test]
    fn nothing_written_is_not_always_stale() {
        assert_eq!(accepted(1, "a", token(33), None), Ok(true));
        assert_eq!(accepted(0, "a", token(33), None), Ok(false));
        assert_eq!(accepted(0, "a", token(33), Some(0)), Ok(false));
        assert_eq!(accepted(0, "a", token(33), Some(33)), Ok(false));
        let error = accepted(0, "a", token(33), Some(34)).expect_err("34 was seen");
        let stale = error.stale_token().expect("a refusal has its details");
        assert_eq!((stale.offered, stale.highest), (token(33), token(34)));
        let error = accepted(0, "a", token(33), Some(i64::MAX)).expect_err("it is no token");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}
