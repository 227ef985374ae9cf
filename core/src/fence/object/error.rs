//! Maps errors of the store to those of the guard.

use std::error::Error as StdError;
use std::io;

use leasehold_engine::{Error, ErrorKind};
use object_store::Error as StoreError;
use object_store::path::Path;

/// Wraps an error of the store: its kind, the object's path and the source.
pub(super) fn wrap(path: &Path, error: StoreError) -> Error {
    let kind = kind(&error);
    let message = match kind {
        ErrorKind::Unsupported => format!(
            "the object store cannot be guarded: it lacks conditional puts (PutMode::Create and \
             PutMode::Update) or metadata of objects, as LocalFileSystem does: {error}"
        ),
        _ => format!("a request for the object {path} failed: {error}"),
    };
    Error::with_source(kind, message, error)
}

/// The error for a store that returns neither an etag nor a version, so that puts cannot be conditional.
pub(super) fn no_version(path: &Path) -> Error {
    let message = format!(
        "the object store cannot be guarded: it returns neither an etag nor a version for the \
         object {path}"
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// The error for an object that has a guard's metadata but was changed by something else.
pub(super) fn unlike_ours(path: &Path, what: &str) -> Error {
    let message = format!(
        "the object {path} has a guard's metadata but not a guard's {what}: something other than a \
         guard wrote to it"
    );
    Error::new(ErrorKind::WrongType, message)
}

fn kind(error: &StoreError) -> ErrorKind {
    match error {
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => {
            ErrorKind::Unsupported
        }
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => ErrorKind::Auth,
        StoreError::InvalidPath { .. } | StoreError::UnknownConfigurationKey { .. } => {
            ErrorKind::Config
        }
        StoreError::Generic { source, .. } => transport(&**source),
        _ => ErrorKind::Store,
    }
}

/// Finds out why a request failed. The store's client exposes the cause only with features that a guard does
/// not need, so this reads the chain of sources, and the status in the message.
fn transport(error: &(dyn StdError + 'static)) -> ErrorKind {
    let mut found = ErrorKind::Store;
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string();
        if text.contains("timed out") {
            return ErrorKind::Timeout;
        }
        let status = text.split("status code: ").nth(1);
        let status = status.and_then(|rest| rest.get(..3)?.parse::<u16>().ok());
        // Many stores answer 501 to a condition that they do not know.
        if status == Some(501) {
            return ErrorKind::Unsupported;
        }
        if matches!(status, Some(408 | 429 | 500..=599)) || error.is::<io::Error>() {
            found = ErrorKind::Unavailable;
        }
        cause = error.source();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(source: impl Into<Box<dyn StdError + Send + Sync>>) -> ErrorKind {
        let source = source.into();
        kind(&StoreError::Generic {
            store: "S3",
            source,
        })
    }

    #[test]
    fn store_errors_map_to_kinds() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(generic(refused), ErrorKind::Unavailable);
        let status = "Server returned non-2xx status code: 503 Service Unavailable: ";
        assert_eq!(generic(status), ErrorKind::Unavailable);
        let status = "Server returned non-2xx status code: 400 Bad Request: ";
        assert_eq!(generic(status), ErrorKind::Store);
        let status = "Server returned non-2xx status code: 501 Not Implemented: ";
        assert_eq!(generic(status), ErrorKind::Unsupported);
        assert_eq!(generic("operation timed out"), ErrorKind::Timeout);
        assert_eq!(generic("status code: 5"), ErrorKind::Store);
        let missing = StoreError::NotImplemented {
            operation: "put".to_owned(),
            implementer: "a store".to_owned(),
        };
        assert_eq!(kind(&missing), ErrorKind::Unsupported);
        let (path, refused) = ("a".to_owned(), || "no".into());
        let denied = StoreError::PermissionDenied {
            path: path.clone(),
            source: refused(),
        };
        assert_eq!(kind(&denied), ErrorKind::Auth);
        let unknown = StoreError::Unauthenticated {
            path,
            source: refused(),
        };
        assert_eq!(kind(&unknown), ErrorKind::Auth);
        let key = "a-key".to_owned();
        let option = StoreError::UnknownConfigurationKey { store: "S3", key };
        assert_eq!(kind(&option), ErrorKind::Config);
        let source = Path::parse("a//b").expect_err("a segment is empty");
        assert_eq!(kind(&StoreError::InvalidPath { source }), ErrorKind::Config);
    }
}
