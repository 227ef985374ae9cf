//! The error type.

mod check;
mod json;
mod kind;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::advice::Advice;
use crate::protocol::Rights;
pub use kind::ErrorKind;

/// An error: a [kind](ErrorKind), a message, and a source if there is one.
///
/// The message names the culprit and never holds a password or a URL's credentials. The type is opaque, so
/// that it can gain detail without breaking anyone. It is cheap to clone, because one failed request may
/// concern many callers and every reader of the events.
///
/// ```
/// # use leasehold_engine as leasehold;
/// use leasehold::{ErrorKind, Name};
///
/// let error = Name::new("").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Config);
/// assert!(!error.is_transient());
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

/// The parts of the message `{about}: {subject} {what}; {advice}`. Only `what` is always there.
struct Inner {
    kind: ErrorKind,
    about: Option<Box<str>>,
    /// The setting that is not valid, by its name, or a description of it.
    subject: Option<&'static str>,
    what: Box<str>,
    advice: Option<Advice>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Makes an error. For hosts of the engine and for guards.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Unavailable, "the link is down");
    /// assert_eq!(error.to_string(), "the link is down");
    /// ```
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self::of_parts(kind, None, message.as_ref(), None, None)
    }

    /// Makes an error with a cause.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::{Error, ErrorKind};
    ///
    /// let cause = std::io::Error::other("connection reset");
    /// let error = Error::with_source(ErrorKind::Unavailable, "the link is down", cause);
    /// assert!(std::error::Error::source(&error).is_some());
    /// ```
    pub fn with_source(
        kind: ErrorKind,
        message: impl AsRef<str>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        let source = Some(Arc::from(source.into()));
        Self::of_parts(kind, None, message.as_ref(), None, source)
    }

    /// Makes an [`ErrorKind::Config`] error about a setting, with the rule that it breaks. For hosts of the
    /// engine.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::Error;
    ///
    /// let error = Error::bad_option("patience", "must be a number of milliseconds");
    /// assert_eq!(error.to_string(), "patience must be a number of milliseconds");
    /// assert_eq!(error.option(), Some("patience"));
    /// ```
    pub fn bad_option(option: &'static str, rule: impl AsRef<str>) -> Self {
        Self::of_parts(ErrorKind::Config, Some(option), rule.as_ref(), None, None)
    }

    /// Makes an error with advice.
    pub(crate) fn advised(kind: ErrorKind, what: &str, advice: Option<Advice>) -> Self {
        Self::of_parts(kind, None, what, advice, None)
    }

    // Not inlined: errors are made in many places, and a browser should load this code and the copying once.
    #[cold]
    #[inline(never)]
    fn of_parts(
        kind: ErrorKind,
        subject: Option<&'static str>,
        what: &str,
        advice: Option<Advice>,
        source: Option<Arc<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Inner {
            kind,
            about: None,
            subject,
            what: what.into(),
            advice,
            source,
        }))
    }

    /// Returns the kind of the error, to match on.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::{ErrorKind, Name};
    ///
    /// let error = Name::new("x".repeat(600)).unwrap_err();
    /// match error.kind() {
    ///     ErrorKind::Config => println!("a mistake of ours: {error}"),
    ///     kind => println!("{}: {error}", kind.code()),
    /// }
    /// ```
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns true if the same call may succeed later without any change by the caller.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::{Error, ErrorKind};
    ///
    /// assert!(Error::new(ErrorKind::Unavailable, "the link is down").is_transient());
    /// assert!(!Error::new(ErrorKind::Auth, "wrong password").is_transient());
    /// ```
    pub fn is_transient(&self) -> bool {
        self.kind().is_transient()
    }

    /// Returns true if the store did not reply in time.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// assert!(leasehold::Error::no_answer().is_timeout());
    /// ```
    pub fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }

    /// Returns true if the lease was already lost or released.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::{Error, ErrorKind};
    ///
    /// assert!(Error::new(ErrorKind::NotHeld, "the lease was lost before").is_not_held());
    /// ```
    pub fn is_not_held(&self) -> bool {
        self.kind() == ErrorKind::NotHeld
    }

    /// Returns the name of the setting that is not valid, if the error is about one.
    ///
    /// It is the name of the method that sets it.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::{engine::Settings, protocol::ClientId};
    ///
    /// let mut settings = Settings::new(ClientId(1));
    /// settings.drift_margin = 1;
    /// assert_eq!(settings.checked().unwrap_err().option(), Some("drift_margin"));
    /// ```
    pub fn option(&self) -> Option<&'static str> {
        self.0.subject.filter(|subject| !subject.contains(' '))
    }

    /// Returns true if an argument or a setting was not valid.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// assert!(leasehold::Name::new("").unwrap_err().is_config());
    /// ```
    pub fn is_config(&self) -> bool {
        self.kind() == ErrorKind::Config
    }

    /// Returns this error with the name of the lock that it is about.
    #[doc(hidden)]
    #[must_use]
    pub fn about(&self, name: &crate::name::Name) -> Self {
        self.of(format_args!("lock {name:?}"))
    }

    /// Returns this error with its subject in front of the message.
    #[doc(hidden)]
    #[must_use]
    pub fn of(&self, what: impl fmt::Display) -> Self {
        let inner = &*self.0;
        let about = match &inner.about {
            Some(about) => format!("{what}: {about}"),
            None => what.to_string(),
        };
        Self(Arc::new(Inner {
            about: Some(about.into()),
            what: inner.what.clone(),
            source: inner.source.clone(),
            ..*inner
        }))
    }

    /// Returns this error with its advice on rights filled in for a namespace.
    #[doc(hidden)]
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        let inner = &*self.0;
        if inner.advice != Some(Advice::Rights) {
            return self;
        }
        let mut what = format!("{}; ", inner.what);
        Rights::new(namespace).advise(&mut what);
        Self(Arc::new(Inner {
            about: inner.about.clone(),
            what: what.into(),
            advice: None,
            source: inner.source.clone(),
            ..*inner
        }))
    }

    fn message(&self) -> String {
        let Inner {
            about,
            subject,
            what,
            advice,
            ..
        } = &*self.0;
        let mut message = String::new();
        let parts = [
            (about.as_deref(), ": "),
            (*subject, " "),
            (Some(&**what), ""),
        ];
        for (part, after) in parts {
            if let Some(part) = part {
                message.push_str(part);
                message.push_str(after);
            }
        }
        if let Some(advice) = advice {
            message.push_str("; ");
            advice.write(&mut message);
        }
        message
    }

    /// Makes the error for a store that did not reply in time. For hosts of the engine.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// let error = leasehold::Error::no_answer();
    /// assert!(error.is_timeout() && error.is_transient());
    /// ```
    pub fn no_answer() -> Self {
        Self::new(
            ErrorKind::Timeout,
            "the store did not answer in time; whether it acted is unknown",
        )
    }

    /// Makes the error for a reply that makes no sense, with the reason.
    #[doc(hidden)]
    pub fn unreadable(reason: &str) -> Self {
        let reason = reason.trim_end_matches('.');
        let message = format!(
            "the store's answer could not be read: {reason}; is it a Redis server, with no proxy in between?"
        );
        Self::new(ErrorKind::Store, message)
    }

    /// Makes the error for a store that cannot be reached, with the reason.
    #[doc(hidden)]
    pub fn unreachable(reason: &str) -> Self {
        let reason = crate::protocol::printable(reason);
        Self::new(ErrorKind::Unavailable, Self::unreachable_for(&reason))
    }

    /// Returns the message for a store that cannot be reached, with the reason.
    #[doc(hidden)]
    pub fn unreachable_for(reason: &str) -> String {
        format!("the store cannot be reached: {reason}")
    }

    /// Makes the error for a server of a quorum that restarted before a request for a lock, perhaps without
    /// its data.
    pub(crate) fn forgot() -> Self {
        Self::new(
            ErrorKind::Unavailable,
            "the server may have forgotten locks; the request did nothing",
        )
    }

    pub(crate) fn shutdown() -> Self {
        Self::new(ErrorKind::Shutdown, "the locker was shut down")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

/// Shows `Error(timeout: the store did not answer in time)`, with the source if there is one. Written by hand
/// because the standard helpers add some kilobytes to what a browser loads.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({}: {}", self.kind().code(), self.message())?;
        if let Some(source) = &self.0.source {
            write!(f, "; source: {source:?}")?;
        }
        f.write_str(")")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}

/// Errors are equal if their kinds and messages are.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.0.kind == other.0.kind && self.message() == other.message()
    }
}

impl Eq for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a cause that is lost when context is added to an error.
    #[test]
    fn an_error_keeps_its_cause() {
        let error = Error::with_source(ErrorKind::Unavailable, "no", "the cause");
        let about = error.of("redis://here");
        assert_eq!(about.to_string(), "redis://here: no");
        let cause = about.source().expect("it has one");
        assert_eq!(cause.to_string(), "the cause");
        let option = Error::bad_option("patience", "is short").of("a locker");
        assert_eq!(option.to_string(), "a locker: patience is short");
        assert_eq!(option.option(), Some("patience"));
    }
}
