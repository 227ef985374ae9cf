//! The SQL statements of the database guard, for any client and version.
//!
//! With the current version of the crate `sqlx`, `sql::begin` does all of this. With another client or
//! version, run the statements yourself, *in the transaction of your work, before its first read*:
//!
//! 1. [`check_resource`] refuses a name that the table cannot hold.
//! 2. [`take`](Statements::take) writes the token unless a greater one is there, and locks the resource's
//!    row.
//! 3. [`highest`](Statements::highest) reads the token that is there now, one number.
//! 4. [`check`](Statements::check) compares the two. Roll back if it returns an error.
//!
//! For the turn of a job, [`complete`](Statements::complete) then records its tick.
//!
//! [`create`](Statements::create) makes the table once. `sql::begin` and the npm package use the same table,
//! so all of them fence one another.
//!
//! ```
//! use leasehold::fence::statements::{SQLITE, check_resource};
//! use leasehold::{Error, FencingToken};
//!
//! // Your client in place of these two: runs a statement; reads one number.
//! let execute = |statement: &str, _resource: &str, _token: u64| println!("{statement}");
//! let query = |statement: &str, _resource: &str| -> i64 { println!("{statement}"); 34 };
//!
//! let token = FencingToken::new(33)?; // lease.token()
//! check_resource("account/7")?;
//! execute(SQLITE.take, "account/7", token.get());
//! let highest = query(SQLITE.highest, "account/7");
//! let refused = SQLITE.check("account/7", token, highest).unwrap_err();
//! assert_eq!(refused.stale_token().unwrap().highest.get(), 34);
//! # Ok::<(), Error>(())
//! ```

use leasehold_engine::{Error, ErrorKind, FencingToken};

/// The statements of one database, to be run in the order that the [module](self) gives.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Statements {
    /// Creates the fence table. Run it once, for example in a migration.
    pub create: &'static str,
    /// Writes the token unless a greater one is there, and locks the resource's row until the transaction
    /// ends.
    ///
    /// Parameters: the resource as text, then the token as a number; on MySQL and MariaDB the token twice.
    pub take: &'static str,
    /// Reads the greatest token, one number in one row.
    ///
    /// Parameter: the resource.
    pub highest: &'static str,
    /// Records a job's completed tick, unless the resource's row has this tick or a later one. Changes one row,
    /// or none.
    ///
    /// If it changes none, an earlier transaction completed the tick: do not do its work again.
    ///
    /// Run it after [`take`](Self::take) and [`check`](Self::check), in the same transaction. Parameters: the tick
    /// as a number, then the resource; on MySQL, MariaDB and SQLite the tick again.
    pub complete: &'static str,
}

/// The statements for Postgres. Parameters are `$1`, `$2`.
pub const POSTGRES: Statements = Statements {
    create: include_str!("sql/postgres/create.sql"),
    take: include_str!("sql/postgres/take.sql"),
    highest: include_str!("sql/postgres/highest.sql"),
    complete: include_str!("sql/postgres/complete.sql"),
};

/// The statements for MySQL and MariaDB, with `InnoDB` tables. Parameters are `?`.
pub const MYSQL: Statements = Statements {
    create: include_str!("sql/mysql/create.sql"),
    take: include_str!("sql/mysql/take.sql"),
    highest: include_str!("sql/mysql/highest.sql"),
    complete: include_str!("sql/mysql/complete.sql"),
};

/// The statements for SQLite. Parameters are `?`. Open the transaction with `BEGIN IMMEDIATE`.
pub const SQLITE: Statements = Statements {
    create: include_str!("sql/sqlite/create.sql"),
    take: include_str!("sql/sqlite/take.sql"),
    highest: include_str!("sql/sqlite/highest.sql"),
    complete: include_str!("sql/sqlite/complete.sql"),
};

impl Statements {
    /// Compares a write's token with the number that [`highest`](Self::highest) returned after
    /// [`take`](Self::take).
    ///
    /// Errors: [`ErrorKind::StaleToken`] if the number is a greater token; [`ErrorKind::Config`] if it is
    /// neither this token nor a greater one. In that case `take` did not run in this transaction, or the
    /// table is not a fence table.
    pub fn check(&self, resource: &str, token: FencingToken, highest: i64) -> Result<(), Error> {
        compare(resource, token, highest)
    }
}

/// Checks the name of a resource before it is sent to a database.
///
/// A database may truncate or refuse a name that it cannot store.
///
/// Errors: [`ErrorKind::Config`] if the name is empty, is longer than 512 bytes or contains a NUL character.
///
/// ```
/// use leasehold::fence::statements::check_resource;
///
/// assert!(check_resource("account/7").is_ok());
/// assert!(check_resource("").is_err());
/// ```
pub fn check_resource(resource: &str) -> Result<(), Error> {
    super::check_resource(resource)?;
    if resource.contains('\0') {
        let message = format!(
            "a resource's name in a database must not contain a NUL character; got {resource:?}"
        );
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok(())
}

/// Compares a token that was written with the number that is stored now.
pub(super) fn compare(resource: &str, token: FencingToken, highest: i64) -> Result<(), Error> {
    match u64::try_from(highest).map(FencingToken::new) {
        Ok(Ok(highest)) if highest == token => Ok(()),
        Ok(Ok(highest)) if highest > token => Err(Error::stale(resource, token, highest)),
        // The column truncated or rounded the token, or something else wrote a number that is no token.
        _ => {
            let message = format!(
                "the table leasehold_fence holds {highest} for the resource {resource:?} after the token {token} \
                 was written: its column `token` must be a BIGINT that only guards write"
            );
            Err(Error::new(ErrorKind::Config, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).expect("it is a token")
    }

    /// Catches a comparison that accepts a smaller number, as a table of another shape may return.
    #[test]
    fn only_the_token_itself_passes() {
        assert_eq!(POSTGRES.check("a", token(33), 33), Ok(()));
        let refused = POSTGRES.check("a", token(33), 34).expect_err("34 is there");
        assert_eq!(
            refused.stale_token().map(|stale| stale.highest),
            Some(token(34))
        );
        for odd in [32, 0, -1, i64::MAX] {
            let error = POSTGRES
                .check("a", token(33), odd)
                .expect_err("it is neither");
            assert_eq!(error.kind(), ErrorKind::Config, "{odd}");
        }
    }

    #[test]
    fn a_resource_is_checked() {
        for name in [String::new(), "x".repeat(513), "a\0b".to_owned()] {
            let error = check_resource(&name).expect_err("it is no name");
            assert_eq!(error.kind(), ErrorKind::Config, "{name:?}");
        }
    }
}
