//! The one error type.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::advice::Advice;
use crate::every::{by_code, every};
use crate::protocol::Rights;

/// What went wrong, in a form to match on.
///
/// That a lock is held by somebody else is not an error: acquiring answers `None` or waits.
#[non_exhaustive]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
pub enum ErrorKind {
    /// A name, a time to live, a URL or a setting is not valid; the message says what is.
    Config,
    /// The store cannot be reached, or says that it cannot serve just now.
    Unavailable,
    /// The store did not answer in time. Whether it acted is *unknown*.
    Timeout,
    /// The store refused the credentials, or does not permit a command to this user.
    Auth,
    /// The server's certificate is not trusted, or the server does not trust the client's.
    Tls,
    /// The server is a replica that takes no writes.
    ReadOnly,
    /// The server is older than is needed, or a store cannot do what a guard needs.
    Unsupported,
    /// A key that a lock needs holds something that is not a lock's.
    WrongType,
    /// The store answered with some other error.
    Store,
    /// The lease is no longer held: it was lost or released before.
    NotHeld,
    /// A guard refused a write: a greater token was seen for its resource. The
    /// [details](Error::stale_token) say which.
    StaleToken,
    /// Too few replicas acknowledged a lock in time, or it did not come to the server's disk; the
    /// message says how many did. The lock was given back.
    NotReplicated,
    /// A bound was reached: too many calls are waiting.
    Overloaded,
    /// The locker was shut down, or the tokio runtime on which it was made has ended.
    Shutdown,
}

impl ErrorKind {
    const ALL: &'static [Self] = every!(ErrorKind:
        Config, Unavailable, Timeout, Auth, Tls, ReadOnly, Unsupported, WrongType, Store, NotHeld,
        StaleToken, NotReplicated, Overloaded, Shutdown,
    );

    /// The kind with this [code](Self::code).
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

    /// The same, for tables that are read at compile time.
    #[doc(hidden)]
    pub const fn of_code(code: &str) -> Option<Self> {
        by_code!(Self::ALL, code)
    }

    /// The kind as a short code, the same in every language binding.
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
            Self::Shutdown => "shutdown",
        }
    }

    fn is_transient(self) -> bool {
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
            | Self::Shutdown => false,
        }
    }
}

/// An error of this crate: a [kind](ErrorKind), a message that names the culprit, and a source
/// where there is one.
///
/// It is opaque, so that it can gain detail without breaking anyone, and cheap to clone, since
/// one failed request may concern many callers and every reader of the events. Messages never
/// hold a password or a URL's credentials.
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

/// The message is put together of parts, all but `what` optional: `{about}: {subject} {what}; {advice}`.
struct Inner {
    kind: ErrorKind,
    about: Option<Box<str>>,
    /// What is not valid: a setting by its name, or what it is in words.
    subject: Option<&'static str>,
    what: Box<str>,
    advice: Option<Advice>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Makes an error; for hosts of the engine and for guards.
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

    /// Makes an error that another one caused.
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

    /// [`ErrorKind::Config`] of a setting, with what is right; for hosts of the engine.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// use leasehold::Error;
    ///
    /// let error = Error::bad_option("patience", "is a number of milliseconds");
    /// assert_eq!(error.to_string(), "patience is a number of milliseconds");
    /// assert_eq!(error.option(), Some("patience"));
    /// ```
    pub fn bad_option(option: &'static str, rule: impl AsRef<str>) -> Self {
        Self::of_parts(ErrorKind::Config, Some(option), rule.as_ref(), None, None)
    }

    /// An error, and what to do about it.
    pub(crate) fn advised(kind: ErrorKind, what: &str, advice: Option<Advice>) -> Self {
        Self::of_parts(kind, None, what, advice, None)
    }

    // Errors are made in many places, and what a browser loads should have this once, with the copy of the text.
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

    /// What went wrong, to match on.
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

    /// Whether the same call may succeed later with nothing changed by the caller.
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

    /// Whether the store did not reply in time.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// assert!(leasehold::Error::no_answer().is_timeout());
    /// ```
    pub fn is_timeout(&self) -> bool {
        self.kind() == ErrorKind::Timeout
    }

    /// Whether the lease had been lost or released before.
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

    /// Which setting is not valid, by the name of the call that makes it, if it is one setting's fault.
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

    /// Whether an argument or a setting was not valid.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// assert!(leasehold::Name::new("").unwrap_err().is_config());
    /// ```
    pub fn is_config(&self) -> bool {
        self.kind() == ErrorKind::Config
    }

    /// The same error with the name that it is about.
    #[doc(hidden)]
    #[must_use]
    pub fn about(&self, name: &crate::name::Name) -> Self {
        self.of(format_args!("lock {name:?}"))
    }

    /// The same error with what it is about.
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

    /// [`ErrorKind::Config`] if a text is empty or has more bytes than that.
    #[doc(hidden)]
    pub fn check_length(what: &str, text: &str, most: usize) -> Result<(), Self> {
        let length = text.len();
        if (1..=most).contains(&length) {
            return Ok(());
        }
        let message = format!("{what} has 1 to {most} bytes, this one has {length}");
        Err(Self::new(ErrorKind::Config, message))
    }

    /// [`ErrorKind::Config`] if a time is out of bounds; `what` is a setting's name, or what it is in words.
    #[doc(hidden)]
    pub fn check_range(
        what: &'static str,
        time: Duration,
        least: Duration,
        most: Duration,
    ) -> Result<(), Self> {
        if (least..=most).contains(&time) {
            return Ok(());
        }
        let [least, most, time] = [least, most, time].map(in_words);
        let rule = format!("is from {least} to {most}, not {time}");
        Err(Self::bad_option(what, rule))
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

    /// The store did not reply in time; for hosts of the engine.
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

    /// What the store answered makes no sense, for this reason.
    #[doc(hidden)]
    pub fn unreadable(reason: &str) -> Self {
        let message = format!("the store's answer could not be read: {reason}");
        Self::new(ErrorKind::Store, message)
    }

    /// The store cannot be reached for this reason.
    #[doc(hidden)]
    pub fn unreachable(reason: &str) -> Self {
        let reason = crate::protocol::printable(reason);
        Self::new(ErrorKind::Unavailable, Self::unreachable_for(&reason))
    }

    /// What is said of a store that cannot be reached for this reason.
    #[doc(hidden)]
    pub fn unreachable_for(reason: &str) -> String {
        format!("the store cannot be reached: {reason}")
    }

    /// A server of a quorum was asked for a lock, and came back before that, perhaps without what it had.
    pub(crate) fn forgot() -> Self {
        Self::new(
            ErrorKind::Unavailable,
            "the server may have forgotten locks, and did nothing",
        )
    }

    pub(crate) fn shutdown() -> Self {
        Self::new(ErrorKind::Shutdown, "the locker was shut down")
    }
}

/// A time as people say it: exactly in few digits, or else roughly.
fn in_words(time: Duration) -> String {
    const DAY: u64 = 86_400;
    const FEW: u64 = 10_000;
    let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
    let days = seconds / DAY;
    if days > 0 {
        let more = if seconds % DAY == 0 && nanos == 0 {
            ""
        } else {
            "more than "
        };
        let plural = if days == 1 { "" } else { "s" };
        return format!("{more}{days} day{plural}");
    }
    if nanos == 0 {
        let unit = if seconds == 0 { "ms" } else { "s" };
        return format!("{seconds} {unit}");
    }
    let nanos = seconds * 1_000_000_000 + u64::from(nanos);
    let units = [("ms", 1_000_000), ("µs", 1_000), ("ns", 1)];
    let exact = |(_, size): &&(&str, u64)| nanos % size == 0 && nanos / size < FEW;
    if let Some((unit, size)) = units.iter().find(exact) {
        return format!("{} {unit}", nanos / size);
    }
    let (unit, size) = if seconds > 0 {
        ("s", 1_000_000_000)
    } else if nanos < 1_000_000 {
        ("µs", 1_000)
    } else {
        ("ms", 1_000_000)
    };
    format!("more than {} {unit}", nanos / size)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

/// As `Error(timeout: the store did not answer in time)`, with the source if there is one. The standard
/// helpers for this would be some kilobytes of what a browser loads.
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

/// Errors are equal when their kinds and messages are.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.0.kind == other.0.kind && self.message() == other.message()
    }
}

impl Eq for Error {}

/// As `{"code": "timeout", "message": "…"}`. If the message has more than one part these follow, for
/// hosts that have other words for some: `subject`, what is not valid, most often a setting by its name;
/// `what`; and a code for the advice, `advice`.
impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Inner {
            subject,
            what,
            advice,
            ..
        } = &*self.0;
        let mut fields = serializer.serialize_struct("Error", 5)?;
        fields.serialize_field("code", self.kind().code())?;
        fields.serialize_field("message", &self.message())?;
        if subject.is_some() || advice.is_some() {
            fields.serialize_field("what", &**what)?;
        }
        if let Some(subject) = subject {
            fields.serialize_field("subject", *subject)?;
        }
        if let Some(advice) = advice {
            fields.serialize_field("advice", advice.code())?;
        }
        fields.end()
    }
}

impl Error {
    /// As events have it: of one part.
    pub(crate) fn in_event<S: Serializer>(error: &Self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::new(error.kind(), error.message()).serialize(serializer)
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

    /// What every language calls them.
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

    /// Catches "31622400000000001 ns".
    #[test]
    fn times_are_told_in_words_for_people() {
        let day = Duration::from_secs(86_400);
        let cases = [
            (Duration::ZERO, "0 ms"),
            (Duration::from_nanos(7), "7 ns"),
            (Duration::from_nanos(10_001), "more than 10 µs"),
            (Duration::from_micros(9_999), "9999 µs"),
            (Duration::from_nanos(9_999_999), "more than 9 ms"),
            (Duration::from_millis(10), "10 ms"),
            (Duration::from_millis(1_500), "1500 ms"),
            (Duration::from_secs(3_600), "3600 s"),
            (Duration::from_millis(3_600_001), "more than 3600 s"),
            (day, "1 day"),
            (day * 366, "366 days"),
            (day * 366 + Duration::from_nanos(1), "more than 366 days"),
            (day / 2 * 123, "more than 61 days"),
            (Duration::MAX, "more than 213503982334601 days"),
        ];
        for (time, words) in cases {
            assert_eq!(in_words(time), words);
        }
    }

    #[test]
    fn the_parts_of_a_message_are_told() {
        let json = |error: &Error| serde_json::to_string(error).expect("an error serializes");
        let error = Error::bad_option("patience", "is short");
        assert_eq!(
            json(&error),
            r#"{"code":"config","message":"patience is short","what":"is short","subject":"patience"}"#
        );
        let error = Error::advised(ErrorKind::ReadOnly, "no", Some(Advice::Primary));
        assert_eq!(
            json(&error),
            r#"{"code":"readOnly","message":"no; connect to the primary","what":"no","advice":"primary"}"#
        );
        let error = Error::advised(ErrorKind::Store, "no", None);
        assert_eq!(json(&error), r#"{"code":"store","message":"no"}"#);
    }

    /// Catches a cause that is lost when an error is told with what it is about.
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
