//! The kinds of errors.

use crate::every::{by_code, every};

/// The kind of an [`Error`](super::Error), to match on.
///
/// It is not an error that another client holds a lock: acquiring waits or returns `None`.
#[non_exhaustive]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum ErrorKind {
    /// A name, a time to live, a URL or another setting is not valid. The message says what is.
    Config,
    /// The store cannot be reached, or reports that it cannot serve for now.
    Unavailable,
    /// The store did not reply in time. It is *unknown* whether it acted.
    Timeout,
    /// The store refused the credentials, or does not permit this user a command.
    Auth,
    /// The server's certificate is not trusted, or the server does not trust the client's.
    Tls,
    /// The server is a replica, which takes no writes.
    ReadOnly,
    /// The server is too old, or a store or client lacks a feature that a lock or guard needs.
    Unsupported,
    /// A key that a lock needs holds something other than a lock's data.
    WrongType,
    /// The store returned some other error.
    Store,
    /// The lease is not held: it was already lost or released.
    NotHeld,
    /// A guard refused a write, because it has seen a greater token for the resource. See
    /// [`Error::stale_token`](super::Error::stale_token).
    StaleToken,
    /// Too few replicas acknowledged a lock in time, or the server's disk did not have it in time. The
    /// message says how many did. The lock was given back.
    NotReplicated,
    /// A limit on pending calls was reached.
    Overloaded,
    /// The lease cannot be extended: it has been held for nearly as long as `at_most` allows.
    Overheld,
    /// The locker was shut down, or the tokio runtime on which it was made has ended.
    Shutdown,
}

impl ErrorKind {
    const ALL: &'static [Self] = every!(ErrorKind:
        Config, Unavailable, Timeout, Auth, Tls, ReadOnly, Unsupported, WrongType, Store, NotHeld,
        StaleToken, NotReplicated, Overloaded, Overheld, Shutdown,
    );

    /// Returns the kind with this [code](Self::code).
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::ErrorKind;
    ///
    /// assert_eq!(ErrorKind::from_code("timeout"), Some(ErrorKind::Timeout));
    /// assert_eq!(ErrorKind::from_code("Timeout"), None);
    /// ```
    pub fn from_code(code: &str) -> Option<Self> {
        Self::of_code(code)
    }

    /// Returns the kind with this code, for tables that are read at compile time.
    #[doc(hidden)]
    pub const fn of_code(code: &str) -> Option<Self> {
        by_code!(Self::ALL, code)
    }

    /// Returns the kind as a short code, which is the same in every language binding.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// assert_eq!(leasehold::ErrorKind::NotHeld.code(), "notHeld");
    /// ```
    pub const fn code(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Auth => "auth",
            Self::Tls => "tls",
            Self::ReadOnly => "readOnly",
            Self::Unsupported => "unsupported",
            Self::WrongType => "wrongType",
            Self::Store => "store",
            Self::NotHeld => "notHeld",
            Self::StaleToken => "staleToken",
            Self::NotReplicated => "notReplicated",
            Self::Overloaded => "overloaded",
            Self::Overheld => "overheld",
            Self::Shutdown => "shutdown",
        }
    }

    pub(super) fn is_transient(self) -> bool {
        match self {
            Self::Unavailable
            | Self::Timeout
            | Self::ReadOnly
            | Self::NotReplicated
            | Self::Overloaded => true,
            Self::Config
            | Self::Auth
            | Self::Tls
            | Self::Unsupported
            | Self::WrongType
            | Self::Store
            | Self::NotHeld
            | Self::StaleToken
            | Self::Overheld
            | Self::Shutdown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Vectors {
        errors: Vec<Vector>,
    }

    #[derive(serde::Deserialize)]
    struct Vector {
        code: String,
        transient: bool,
        #[serde(default)]
        only: String,
    }

    /// Checks the codes that all languages share.
    #[test]
    fn kinds_have_their_codes() {
        let Vectors { errors } = serde_json::from_str(&crate::vectors("codes.json"))
            .expect("the vectors are of this shape");
        let ours = ErrorKind::ALL
            .iter()
            .map(|kind| (kind.code().to_owned(), kind.is_transient()));
        let theirs = errors.into_iter().filter(|vector| vector.only.is_empty());
        let theirs = theirs.map(|vector| (vector.code, vector.transient));
        assert_eq!(ours.collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
    }
}
