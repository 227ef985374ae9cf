//! Maps fred's errors, and hides passwords in them.

use ::fred::clients::Client;
use ::fred::error::{Error as FredError, ErrorKind as FredErrorKind};
use ::fred::interfaces::ClientLike;
use ::fred::types::config::{Config, ServerConfig};
use leasehold_engine::protocol::{self, server_error};
use leasehold_engine::{Error, ErrorKind};

/// The replacement for a message that must not be shown.
const HIDDEN: &str = "(its message contains the password and is not shown)";

/// The passwords that must not be shown: servers echo commands, AUTH among them.
#[derive(Clone)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    pub(crate) fn of(client: &Client) -> Self {
        Self::in_config(&client.client_config())
    }

    /// Returns an empty set, for a client that does not expose its passwords.
    #[cfg(feature = "redis-rs")]
    pub(crate) fn unknown() -> Self {
        Self(Vec::new())
    }

    pub(super) fn in_config(config: &Config) -> Self {
        let of_sentinels = match &config.server {
            ServerConfig::Sentinel { password, .. } => password.clone(),
            _ => None,
        };
        let all = config.password.iter().cloned().chain(of_sentinels);
        Self(all.filter(|password| !password.is_empty()).collect())
    }

    /// Returns true if the error's own message must not be shown.
    pub(crate) fn hide(&self, error: &FredError) -> bool {
        let mut secrets = self.0.iter();
        secrets.any(|password| error.details().contains(password.as_str()))
    }

    /// Returns an error's own message, for a text that names the server.
    pub(super) fn reason(&self, error: &FredError) -> String {
        if self.hide(error) {
            return HIDDEN.to_owned();
        }
        protocol::printable(plain(error.details()))
    }

    pub(crate) fn convert(&self, error: &FredError) -> Error {
        let details = plain(error.details());
        if let Some(refusal) = protocol::credentials_refused(details) {
            refusal
        } else if self.hide(error) {
            convert(error, HIDDEN, None)
        } else {
            convert(error, details, Some(error.clone()))
        }
    }
}

/// Returns true if a server sent this error, which proves that the link works. All errors of servers begin
/// with a code such as `NOPERM`; none of fred's own does.
pub(super) fn is_answer(error: &FredError) -> bool {
    let code = error.details().split(' ').next().unwrap_or_default();
    !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Extracts the message of an error of the operating system, which fred shows in its debug form.
fn plain(details: &str) -> &str {
    let quoted = |field: &str| {
        let (_, rest) = details.split_once(field)?;
        rest.split_once('"').map(|(text, _)| text)
    };
    let wrapped = || {
        let (_, error) = details
            .strip_prefix("Custom { kind: ")?
            .split_once(", error: ")?;
        error.strip_suffix(" }")
    };
    quoted("message: \"")
        .or_else(|| quoted("error: \""))
        .or_else(wrapped)
        .unwrap_or(details)
}

/// Converts an error. Only fred's own errors keep their cause; a server's reply is in the message.
fn convert(error: &FredError, details: &str, cause: Option<FredError>) -> Error {
    if let (FredErrorKind::Sentinel, Some(message)) = (error.kind(), misconfigured(details)) {
        return Error::new(ErrorKind::Config, message);
    }
    if error.kind() == &FredErrorKind::Sentinel && details.starts_with("NOPERM") {
        let message = format!("the server answered: {details}; {SENTINEL_RIGHTS}");
        return Error::new(ErrorKind::Auth, message);
    }
    let kind = match error.kind() {
        FredErrorKind::Timeout => return Error::no_answer(),
        FredErrorKind::Backpressure => ErrorKind::Overloaded,
        FredErrorKind::IO
        | FredErrorKind::Canceled
        | FredErrorKind::Routing
        | FredErrorKind::Cluster
        | FredErrorKind::Sentinel => ErrorKind::Unavailable,
        FredErrorKind::Protocol | FredErrorKind::Parse => ErrorKind::Store,
        #[cfg(feature = "tls-rustls")]
        FredErrorKind::Tls => ErrorKind::Tls,
        // Messages of fred's own, not of a server.
        _ if details.starts_with("Failed to") || details.starts_with("Too many failed") => {
            ErrorKind::Unavailable
        }
        _ => return classified(error, details),
    };
    let message = match kind {
        ErrorKind::Overloaded => format!("too many commands wait for the connection: {details}"),
        ErrorKind::Store => return Error::unreadable(details),
        _ => Error::unreachable_for(details),
    };
    match cause {
        Some(cause) => Error::with_source(kind, message, cause),
        None => Error::new(kind, message),
    }
}

/// The rights needed to find a primary. Tests take each of them away.
const SENTINEL_RIGHTS: &str = "with sentinels, the user at the servers also needs +role, and the user at \
                               the sentinels needs +sentinel|get-master-addr-by-name +sentinel|sentinels";

/// Returns the mistake in the URL that a sentinel's reply reveals.
fn misconfigured(details: &str) -> Option<&'static str> {
    if details.starts_with("Missing primary address") {
        return Some("the sentinels know no service of this name; check the service in the URL");
    }
    details.starts_with("ERR unknown command").then_some(
        "the server is not a sentinel; name the sentinels in the URL (usually at port 26379)",
    )
}

/// Converts a server's refusal. The kind depends on the full message, even if that is not shown.
fn classified(error: &FredError, shown: &str) -> Error {
    let kind = server_error(plain(error.details()), None).kind();
    let said = server_error(shown, None);
    if said.kind() == kind {
        return said;
    }
    Error::new(kind, format!("the server refused {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_operating_system_are_shown_plainly() {
        let debug = "Os { code: 111, kind: ConnectionRefused, message: \"Connection refused\" }";
        assert_eq!(plain(debug), "Connection refused");
        let debug = "Custom { kind: Uncategorized, error: \"failed to lookup\" }";
        assert_eq!(plain(debug), "failed to lookup");
        let debug = "Custom { kind: InvalidData, error: InvalidCertificate(Expired) }";
        assert_eq!(plain(debug), "InvalidCertificate(Expired)");
        assert_eq!(plain("Unexpected EOF"), "Unexpected EOF");
    }

    fn said(details: &'static str) -> FredError {
        FredError::new(FredErrorKind::Unknown, details)
    }

    #[test]
    fn only_errors_of_a_server_count_as_answers() {
        for details in [
            "NOPERM User poor has no permissions to run the 'ping' command",
            "BUSY Redis is busy running a script",
            "ERR unknown command 'PING'",
        ] {
            assert!(is_answer(&said(details)), "{details}");
        }
        for details in [
            "",
            "Request timed out.",
            "Canceled",
            "Os { code: 104, kind: ConnectionReset, message: \"Connection reset by peer\" }",
            "Failed to send command",
        ] {
            assert!(!is_answer(&said(details)), "{details}");
        }
    }

    /// Catches a reason that is hidden because the password is one of its words.
    #[test]
    fn refused_credentials_are_reported_in_our_own_words() {
        let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
        for password in ["password", "pass", "user", "invalid", "a"] {
            let secrets = Secrets(vec![password.to_owned()]);
            let error = secrets.convert(&said(wrong));
            assert_eq!(error.kind(), ErrorKind::Auth);
            assert_eq!(
                error.to_string(),
                "the server refused the user or password (WRONGPASS); check the user and password \
                 in the URL"
            );
            let error = secrets.convert(&said(
                "ERR unknown command 'AUTH' 'password' 'user' 'invalid'",
            ));
            assert!(error.to_string().contains("is not shown"), "{error}");
        }
        let echoed = said("WRONGPASS s3cret is not the password");
        let error = Secrets(Vec::new()).convert(&echoed).to_string();
        assert!(
            !error.contains("s3cret"),
            "nothing of the server's is shown: {error}"
        );
    }

    /// Returns all that a program may log of an error: its message and debug form, and those of its causes.
    fn logged(error: &Error) -> String {
        let first: &dyn std::error::Error = error;
        let chain = std::iter::successors(Some(first), |error| error.source());
        let texts = chain.map(|error| format!("{error}\n{error:?}\n{error:#?}\n"));
        texts.collect()
    }

    /// Catches a password that the message hides, and a cause quotes.
    #[test]
    fn no_cause_quotes_a_password() {
        let kinds = [
            FredErrorKind::Config,
            FredErrorKind::Auth,
            FredErrorKind::Routing,
            FredErrorKind::IO,
            FredErrorKind::InvalidCommand,
            FredErrorKind::InvalidArgument,
            FredErrorKind::Url,
            FredErrorKind::Protocol,
            #[cfg(feature = "tls-rustls")]
            FredErrorKind::Tls,
            FredErrorKind::Canceled,
            FredErrorKind::Unknown,
            FredErrorKind::Timeout,
            FredErrorKind::Cluster,
            FredErrorKind::Parse,
            FredErrorKind::Sentinel,
            FredErrorKind::NotFound,
            FredErrorKind::Backpressure,
        ];
        let mut with_cause = 0;
        for kind in kinds {
            for details in [
                "ERR unknown command 'AUTH', with args beginning with: 's3cret'",
                "NOPERM s3cret",
                "Failed to send s3cret",
                "the reply was s3cret",
            ] {
                let error = FredError::new(kind.clone(), details);
                let shown = logged(&Secrets(vec!["s3cret".to_owned()]).convert(&error));
                assert!(!shown.contains("s3cret"), "{kind:?}: {shown}");
                // Without a password to hide, these errors have a cause that quotes the server.
                let error = Secrets(Vec::new()).convert(&error);
                let cause = std::error::Error::source(&error);
                with_cause +=
                    usize::from(cause.is_some_and(|cause| cause.to_string().contains("s3cret")));
            }
        }
        assert!(with_cause > 8, "{with_cause}");
    }
}
