//! Maps errors of a database.

use leasehold_engine::{Error, ErrorKind};

/// The class of a database's error, as far as a guard cares.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Class {
    /// Another transaction conflicted, and this one is over. All of it may be tried again.
    Race,
    /// The fence table is missing or has another structure.
    Shape,
    /// Any other error.
    Kind(ErrorKind),
}

/// An error with its class. [`begin`](super::begin) tries again after a race.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) class: Class,
    pub(super) error: Error,
}

impl Failure {
    pub(super) fn new<DB: super::Database>(error: sqlx::Error) -> Self {
        let class = class::<DB>(&error);
        let error = match class {
            Class::Race => Error::with_source(
                ErrorKind::Unavailable,
                format!("another transaction conflicted with the fence check: {error}"),
                error,
            ),
            Class::Shape => {
                Error::with_source(ErrorKind::Config, format!("{WRONG_SHAPE}: {error}"), error)
            }
            Class::Kind(kind) => {
                Error::with_source(kind, format!("the database guard failed: {error}"), error)
            }
        };
        Self { class, error }
    }
}

/// Maps an error of a commit, which was refused or whose outcome is unknown.
pub(super) fn of_commit<DB: super::Database>(error: sqlx::Error) -> Error {
    let class = matches!(error, sqlx::Error::Database(_)).then(|| class::<DB>(&error));
    let (kind, what) = match class {
        Some(Class::Kind(kind)) => (kind, REFUSED),
        Some(Class::Race) => (ErrorKind::Unavailable, REFUSED),
        // The fence table was right before, so this is, for example, a constraint of the program's own.
        Some(Class::Shape) => (ErrorKind::Store, REFUSED),
        None => (ErrorKind::Unavailable, UNKNOWN),
    };
    Error::with_source(kind, format!("{what}: {error}"), error)
}

const REFUSED: &str = "the database refused the commit, and nothing was written";

const UNKNOWN: &str =
    "the connection broke during the commit, so it is unknown whether it took effect";

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            class: Class::Kind(error.kind()),
            error,
        }
    }
}

const WRONG_SHAPE: &str = "the table leasehold_fence is missing or has another structure than this \
     version needs; call leasehold::fence::sql::create_table, which creates it or says what is wrong with it";

fn class<DB: super::Database>(error: &sqlx::Error) -> Class {
    match error {
        sqlx::Error::Database(error) => DB::fence_error(&**error),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed => Class::Kind(ErrorKind::Unavailable),
        sqlx::Error::PoolClosed => Class::Kind(ErrorKind::Shutdown),
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::RowNotFound => Class::Shape,
        sqlx::Error::Configuration(_)
        | sqlx::Error::BeginFailed
        | sqlx::Error::InvalidSavePointStatement => Class::Kind(ErrorKind::Config),
        _ => Class::Kind(ErrorKind::Store),
    }
}
