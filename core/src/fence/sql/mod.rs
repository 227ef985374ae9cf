//! Guards for SQL databases: Postgres, MySQL, MariaDB and SQLite, through [`sqlx`].
//!
//! [`begin`] opens a transaction that has checked the token and holds the resource's row of the *fence
//! table*. SQL in that transaction is guarded: it takes effect together with the check or not at all, and
//! holders of the same resource run one after the other. The guard lasts until the transaction ends. [Some
//! statements end it](#statements-that-end-a-transaction); then the commit is refused.
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
//! Each transaction has some additional statements: two on Postgres, three on SQLite, four on MySQL.
//!
//! It also waits. A holder that is paused *inside* its transaction keeps the row, and the next holder waits
//! until the server drops the connection or a limit of the database ends the wait. Set such limits:
//! `idle_in_transaction_session_timeout` and `lock_timeout` in Postgres, `innodb_lock_wait_timeout` in MySQL,
//! `idle_transaction_timeout` in MariaDB, `busy_timeout` in SQLite. When a process dies its connection
//! closes, and the row is free at once.
//!
//! # Statements that end a transaction
//!
//! When the transaction ends, it releases the fence row. Later statements on the same connection run outside
//! of any transaction: they take effect at once, whoever holds the resource by then. These end a transaction:
//!
//! - everywhere, `COMMIT` or `ROLLBACK` as a statement
//! - on MySQL and MariaDB, [statements that commit]: `CREATE`, `ALTER`, `DROP` and other DDL, `TRUNCATE`,
//!   `LOCK TABLES`, `GRANT`, `START TRANSACTION`, `SET autocommit = 1`
//! - on MySQL and MariaDB, a deadlock, which rolls back; with `innodb_rollback_on_timeout` also a lock wait
//!   that times out. A program that ignores the error goes on without a transaction
//! - on SQLite, errors that roll back, such as a full disk or `ON CONFLICT ROLLBACK`
//!
//! [`FencedTransaction::commit`] detects all of these and fails with [`ErrorKind::Config`]. *By then it is
//! too late for some writes*: those before a statement that committed took effect under the fence, and those
//! after the end took effect without it. So run no such statements here, and let an error end the work, as
//! `?` does. On Postgres every statement except `COMMIT` and `ROLLBACK` can be part of a transaction, and
//! after an error the transaction accepts nothing until it ends.
//!
//! [`check`] cannot detect them, because the program commits by itself. To detect them, run `SAVEPOINT s`
//! after it and `RELEASE SAVEPOINT s` before the `COMMIT`: the latter fails if the transaction has ended.
//!
//! [statements that commit]: https://dev.mysql.com/doc/refman/8.4/en/implicit-commit.html
//!
//! # The tick of a job
//!
//! `Turn::done_in` records a job's tick in the transaction of its work, so that the work takes effect exactly
//! once per tick.
//!
//! # Isolation levels
//!
//! The guard is correct at every level. Below `REPEATABLE READ`, a statement after [`begin`] sees everything
//! that was committed under earlier tokens. At `REPEATABLE READ` and above, the
//! transaction's snapshot has all of that: [`begin`] tries again with a new one if the row was taken in
//! between. A later statement or the commit may still fail with a serialization failure or a deadlock, as in
//! any transaction. Then run all of it again, from [`begin`] on.
//!
//! # Without sqlx, or with another version
//!
//! [`statements`] has the statements of each database, for any client and language.
//!
//! # The token in a row of your own
//!
//! If a resource is one row, the row itself can hold the token, in a column such as `fence BIGINT NOT NULL
//! DEFAULT 0`. Then the `WHERE` clause guards every write, and no fence table is needed:
//!
//! ```sql
//! UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//! ```
//!
//! [`accepted`] explains a write that affected no row. Create the row beforehand, with the fence 0, in a
//! transaction of its own. Deleting a row forgets its token.
//!
//! A [`FencingToken`] can be bound to a statement directly, and read from a `BIGINT` column.

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
#[cfg(feature = "native")]
mod tick;
mod transaction;

#[cfg(feature = "native")]
pub use tick::TickRecord;
pub use transaction::FencedTransaction;

use leasehold_engine::{Error, ErrorKind, FencingToken};
use sqlx::{Connection, Pool, SqlSafeStr, SqlStr};

use self::failure::Failure;
use self::retry::while_raced;
use self::sealed::Taken;
use super::statements::{self, check_resource};

/// A database that can be guarded: [`sqlx::Postgres`], [`sqlx::MySql`] or [`sqlx::Sqlite`].
///
/// Each needs its feature of this crate. The trait is sealed.
pub trait Database: sealed::Sealed {}

#[cfg(feature = "mysql")]
impl Database for sqlx::MySql {}
#[cfg(feature = "postgres")]
impl Database for sqlx::Postgres {}
#[cfg(feature = "sqlite")]
impl Database for sqlx::Sqlite {}

/// Creates the fence table, unless it exists.
///
/// Several programs may call it at once, each time they start. Only creating the table needs the right to do
/// so. On Postgres the table is created in the first schema of the `search_path`. On SQLite the call takes
/// the write lock even if the table exists.
///
/// An existing table must be as [`statements`] creates it, in each column, constraint and index, and without
/// triggers, rules, row security, parents or children. On Postgres its owner must be this user or a role that
/// includes this user, the owner of the schema or the database, or a superuser. Any other table is refused,
/// because it may forget a token, mistake two resources for one, or run its creator's code with this user's
/// rights.
///
/// The table is checked only here, not by [`begin`]. Whoever may alter it can do so later, and on MySQL only
/// users with the `TRIGGER` privilege see triggers. So let nobody create tables there whom you would not
/// trust with the data.
///
/// Errors: [`ErrorKind::Config`] if another table or view has the name; it is left unchanged, and the error
/// describes it and how to make the right one. [`ErrorKind::Auth`], [`ErrorKind::Unavailable`],
/// [`ErrorKind::ReadOnly`] or [`ErrorKind::Store`] according to the database's error.
///
/// Cancel safe: if the future is dropped, the table is created or not.
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

/// Opens a transaction that has checked the token and holds the resource's fence row.
///
/// Once it commits, no smaller token passes for this resource. If it rolls back, nothing has happened. It has
/// the default isolation level of the database ([`begin_with`] takes another). On SQLite it begins with
/// `BEGIN IMMEDIATE`. See the [module](self) for what is guarded.
///
/// It waits for another transaction that holds the row as long as the database allows. It waits for an
/// unresponsive database as long as the network allows. So give it a timeout. It retries after a deadlock or
/// a serialization failure, because the caller has done nothing yet. No attempt begins later than 10 s after
/// the first.
///
/// Errors, none of which leaves a transaction open:
///
/// - [`ErrorKind::StaleToken`] if a greater token was seen
/// - [`ErrorKind::Config`] if the resource's name is empty, is longer than 512 bytes or has a NUL character,
///   or if the fence table is missing or has another structure: call [`create_table`]
/// - [`ErrorKind::Unavailable`] if the database cannot be reached, the pool had no connection in time, or
///   others held the row for too long
/// - [`ErrorKind::Shutdown`] if the pool is closed
/// - [`ErrorKind::Auth`], [`ErrorKind::ReadOnly`] or [`ErrorKind::Store`] according to the database's error;
///   the source is the [`sqlx::Error`]
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

/// Like [`begin`], with your own statement to open the transaction.
///
/// Examples:
///
/// - Postgres: `BEGIN ISOLATION LEVEL SERIALIZABLE`
/// - MySQL and MariaDB: `SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION`
/// - SQLite: `BEGIN EXCLUSIVE` (every transaction there is serializable)
///
/// Do not add further statements: if one of them fails, sqlx may return the connection to the pool with the
/// transaction open. Do not use `WITH CONSISTENT SNAPSHOT` on MySQL: such a transaction reads a state from
/// before the row was free.
///
/// Errors: those of [`begin`], and [`ErrorKind::Config`] if the statement does not open a transaction.
///
/// Cancel safe: if the future is dropped, the transaction is rolled back.
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

/// Checks the token inside a transaction of your own, and holds the resource's fence row until it ends.
///
/// The transaction is guarded before and after the call, *provided that an error of this call ends it*: on an
/// error roll it back, or drop it, as `?` does.
///
/// Check before the first read. At `REPEATABLE READ` a snapshot that is older than the check may lack an
/// earlier holder's writes. (On Postgres the check then fails if the row has changed since; on MySQL only
/// locking reads see those writes.) On SQLite open the transaction with `BEGIN IMMEDIATE`.
///
/// Errors: those of [`begin`], and [`ErrorKind::Config`] if no transaction is open. It does not retry: after
/// [a transient error](Error::is_transient) you may run the whole transaction again.
///
/// Not cancel safe: if the future is dropped, the check may not have happened. Then roll the transaction back.
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
        let message =
            "a fence must be checked inside a transaction, and none is open: begin one first";
        return Err(Error::new(ErrorKind::Config, message));
    }
    match take::<C::Database>(transaction, resource, token).await {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.error),
    }
}

/// Returns what an `UPDATE … WHERE … AND fence <= token` of a row of your own has done.
///
/// Returns true if it wrote. Returns false if nothing matched for another reason than the token: there is no
/// such row, or another condition did not hold.
///
/// `highest` is the token in the row; `None` if there is no row, or if you did not read it because
/// `rows_affected` is not 0. Read it *after* the write in the same transaction; on MySQL with `FOR UPDATE`,
/// which sees what the write saw.
///
/// Errors: [`ErrorKind::StaleToken`] if a greater token was seen; [`ErrorKind::Config`] if `resource`, which
/// the refusal names, is not a valid name or if `highest` is too large for a token.
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
                // Roll back now, not when the connection is used next. If that fails the connection is
                // broken, and the transaction is gone with it.
                tx.rollback().await.ok();
                Err(failure)
            }
        }
    })
    .await
}

/// Runs the work to its end in a task of its own. If its future is dropped halfway, sqlx may leave a
/// connection that nobody can use, or an open transaction.
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

/// Takes the fence row. Returns the server's number for the transaction.
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

    /// Catches a function that mistakes a missing row or an unmet condition for a refusal, or the reverse.
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
