//! Exit codes, and how failures are reported.

use std::fmt;

use leasehold::{Error, ErrorKind};
use serde::Serialize;

/// The user did not confirm the release of a lock.
pub(crate) const DECLINED: u8 = 1;
/// The command line is not valid. This and the codes up to 78 are those of `sysexits.h`.
pub(crate) const USAGE: u8 = 64;
/// A guard refused a stale token.
pub(crate) const STALE: u8 = 65;
/// The store cannot be reached, did not reply in time, or cannot serve; or too few replicas confirmed.
pub(crate) const STORE_AWAY: u8 = 69;
/// An internal error.
pub(crate) const INTERNAL: u8 = 70;
/// A file could not be read or written.
pub(crate) const FILE: u8 = 74;
/// Somebody else held the lock the whole time, or its holder did not yield.
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// The tick was completed before.
pub(crate) const DONE_BEFORE: u8 = 76;
/// The store refused the user or a command, or a certificate is not trusted.
pub(crate) const REFUSED: u8 = 77;
/// The store cannot keep locks: it is too old, or a lock's key holds something else.
pub(crate) const UNFIT: u8 = 78;
/// The lease was lost while the command ran.
pub(crate) const LOST: u8 = 79;
/// The command exists but cannot be run, as in a shell.
pub(crate) const NOT_RUN: u8 = 126;
/// The command does not exist, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;
/// The base to which the number of the signal is added that ended the command.
pub(crate) const BY_SIGNAL: u8 = 128;

/// Shown at the end of `--help`.
pub(crate) const TABLE: &str = "\
Exit codes:
  of COMMAND  that of COMMAND; 128 + n if signal n ended it
  0, 1, 2     doctor: nothing worse than a note; a warning; something bad
  1           release: you answered no, and nothing was released
  64          the command line or a setting is not valid
  65          the token is stale: a greater one was seen
  69          the store cannot be reached, or does not reply in time
  70          an internal error
  74          a file cannot be read or written
  75          not acquired: somebody else holds the lock; yield: it is still held
  76          run --once, --every: the tick was completed before
  77          the user, a command or a certificate was refused
  78          the store cannot keep locks: too old, or something else at the key
  79          the lease was lost while COMMAND ran
  126, 127    COMMAND cannot be run; COMMAND does not exist";

/// Why the command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    what: String,
    advice: Option<&'static str>,
    /// The library's error, for readers of JSON.
    error: Option<Error>,
}

impl Failure {
    pub(crate) fn new(exit: u8, what: impl Into<String>) -> Self {
        Self {
            exit,
            what: what.into(),
            advice: None,
            error: None,
        }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(USAGE, what)
    }

    /// Adds advice on what to do.
    pub(crate) fn advise(mut self, advice: &'static str) -> Self {
        self.advice = Some(advice);
        self
    }

    /// Returns the failure as one line of JSON.
    pub(crate) fn json(&self) -> String {
        let failed = Failed {
            kind: "failed",
            exit: self.exit,
            message: self.to_string(),
            error: self.error.as_ref(),
        };
        serde_json::to_string(&failed).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Failed<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    exit: u8,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Error>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (exit, advice) = match error.kind() {
            ErrorKind::Config => (USAGE, None),
            ErrorKind::Unavailable | ErrorKind::Timeout => (
                STORE_AWAY,
                Some(
                    "check that the server runs, that --url names it, and that no firewall is in the way",
                ),
            ),
            ErrorKind::ReadOnly => (STORE_AWAY, Some("name the primary, not a replica")),
            ErrorKind::Store | ErrorKind::Overloaded | ErrorKind::NotReplicated => {
                (STORE_AWAY, None)
            }
            ErrorKind::Tls => (REFUSED, None),
            ErrorKind::Auth => (
                REFUSED,
                Some(
                    "check the password (LEASEHOLD_PASSWORD, --password-file) and the user's rights",
                ),
            ),
            ErrorKind::Unsupported | ErrorKind::WrongType => (UNFIT, None),
            ErrorKind::NotHeld | ErrorKind::Overheld => (LOST, None),
            ErrorKind::StaleToken => (STALE, None),
            _ => (INTERNAL, None),
        };
        let advice = match error.option() {
            Some("quorum") => {
                Some("give each server its own --url, or list all of them in LEASEHOLD_URL")
            }
            Some("longest_ttl") => {
                Some("set --longest-ttl to the same time wherever these servers are used")
            }
            _ => advice,
        };
        // The error's own advice takes precedence. "; got …" is not advice.
        let what = error.to_string();
        let mut parts = what.split("; ").skip(1);
        let advice = advice.filter(|_| parts.all(|part| part.starts_with("got ")));
        Self {
            exit,
            what,
            advice,
            error: Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_a_code_of_the_table() {
        // Read at run time, because a published crate does not contain it.
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/vectors/codes.json"
        );
        let vectors = std::fs::read_to_string(file).expect(file);
        let vectors: serde_json::Value = serde_json::from_str(&vectors).expect("JSON");
        let rows = vectors["errors"].as_array().expect("a list");
        let codes = rows.iter().filter_map(|row| row["code"].as_str());
        // Codes that only JavaScript has are left out.
        let kinds: Vec<_> = codes.filter_map(ErrorKind::from_code).collect();
        assert!(kinds.len() > 12, "{kinds:?}");
        for kind in kinds {
            let exit = Failure::from(Error::new(kind, "x")).exit;
            assert!(
                TABLE.contains(&format!("\n  {exit} ")),
                "{kind:?} is {exit}"
            );
            // Only the command itself shuts its locker down.
            assert_eq!(
                exit == INTERNAL,
                kind == ErrorKind::Shutdown,
                "{kind:?} is {exit}"
            );
        }
    }

    /// Catches advice that is left out because the message says what value was given.
    #[test]
    fn only_advice_replaces_advice() {
        let advice = |rule| Failure::from(Error::bad_option("longest_ttl", rule)).advice;
        assert!(advice("allows at most 60s; got 90s").is_some());
        assert_eq!(advice("is 90s; got 60s; set 60s"), None);
    }

    #[test]
    fn a_failure_is_one_line_of_json() {
        let failure = Failure::from(Error::new(ErrorKind::Auth, "no\nentry"));
        assert_eq!(failure.exit, REFUSED);
        let json = failure.json();
        assert!(!json.contains('\n'), "{json}");
        assert!(
            json.starts_with(r#"{"type":"failed","exit":77,"message":"#),
            "{json}"
        );
        assert!(json.contains(r#""error":{"code":"auth""#), "{json}");
    }
}
