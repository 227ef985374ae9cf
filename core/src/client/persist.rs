use std::time::Duration;

use leasehold_engine::{Error, limits};

/// The pause between attempts while the store cannot be reached.
pub(super) const PAUSE: Duration = limits::time("storePause");

/// Repeats an attempt until it succeeds or fails with an error that a retry does not fix. The text says in traces
/// what was attempted.
pub(super) async fn persist<T, F>(what: &str, attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match attempt().await {
            Err(error) if error.is_transient() => {
                trace(what, &error);
                tokio::time::sleep(PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Traces that an attempt failed and will be repeated.
pub(super) fn trace(what: &str, error: &Error) {
    tracing::warn!(
        target: "leasehold",
        {
            "error.type" = error.kind().code(),
            "exception.message" = %error,
        },
        "{what} yet; retrying"
    );
}
