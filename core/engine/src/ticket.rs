//! Tickets: tenures that their holders passed on.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::digits;
use crate::engine::LockSpec;
use crate::error::Error;
use crate::name::Name;
use crate::protocol::limits::LEASE_LENGTH;
use crate::protocol::{LeaseId, LockKey, Retire};
use crate::time::{MILLIS, ServerTime, in_parts};
use crate::token::FencingToken;

/// A held lock on its way to another process: what `Lease::pass` returns and `Locker::accept` takes.
///
/// A ticket is one line of text without spaces, the same in every language; in JSON it is a string. It has the
/// namespace, the name, the token, the lease's ID and time to live, and the time at which the lease reaches the age that
/// its lock allows.
///
/// **Whoever has the text can take the lock, once.** Treat it as a secret, as you would a session: `Debug` shows the
/// name and the token only, and no error repeats the text.
///
/// ```
/// # use leasehold_engine as leasehold;
/// use leasehold::Ticket;
///
/// let text = "leasehold-ticket:1:app:orders%2F42:1764230000000000:30000:0:00112233445566778899aabbccddeeff";
/// let ticket: Ticket = text.parse()?;
/// assert_eq!(ticket.name().as_str(), "orders/42");
/// assert_eq!(ticket.to_string(), text);
/// assert_eq!(format!("{ticket:?}"), r#"Ticket { name: "orders/42", token: FencingToken(1764230000000000), .. }"#);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    namespace: Arc<str>,
    passed: Passed,
}

/// A tenure that its holder passed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Passed {
    /// The name of the lock.
    pub name: Name,
    /// The lease of the tenure.
    pub lease: LeaseId,
    /// The tenure's token.
    pub token: FencingToken,
    /// The lease's time to live.
    pub ttl: Duration,
    /// The server's time, in whole milliseconds, at which the lease reaches the age that `at_most` allows.
    pub ends: Option<ServerTime>,
}

/// The first characters of every ticket, with the version of the format.
const BEGIN: &str = "leasehold-ticket:";
const VERSION: &str = "1";

/// The rule that a text breaks if it is not a ticket at all.
const OTHER: &str =
    "must begin with `leasehold-ticket:1:`; the text is something else, or of another version";

impl Ticket {
    /// The longest text of a ticket, in bytes.
    pub const MAX_BYTES: usize = 2_048;

    /// Makes a ticket for a tenure. For hosts of the engine.
    #[doc(hidden)]
    pub fn new(namespace: impl Into<Arc<str>>, passed: Passed) -> Self {
        let namespace = namespace.into();
        Self { namespace, passed }
    }

    /// Returns the name of the lock.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// # let text = "leasehold-ticket:1:app:a%20b:7:30000:0:00112233445566778899aabbccddeeff";
    /// let ticket: leasehold::Ticket = text.parse()?;
    /// assert_eq!(ticket.name().as_str(), "a b");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn name(&self) -> &Name {
        &self.passed.name
    }

    /// Returns the token of the tenure that was passed on. The accepting lease gets a greater one.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// # let text = "leasehold-ticket:1:app:orders%2F42:7:30000:0:00112233445566778899aabbccddeeff";
    /// let ticket: leasehold::Ticket = text.parse()?;
    /// assert_eq!(ticket.token().get(), 7);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn token(&self) -> FencingToken {
        self.passed.token
    }

    /// Returns the time to live of the lease that was passed on.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// # let text = "leasehold-ticket:1:app:orders%2F42:7:30000:0:00112233445566778899aabbccddeeff";
    /// let ticket: leasehold::Ticket = text.parse()?;
    /// assert_eq!(ticket.ttl(), std::time::Duration::from_secs(30));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn ttl(&self) -> Duration {
        self.passed.ttl
    }

    /// Returns the tenure if the ticket is for this namespace, and for this name if one is given. For hosts of the
    /// engine.
    #[doc(hidden)]
    pub fn passed(&self, namespace: &str, name: Option<&Name>) -> Result<&Passed, Error> {
        let (own, passed) = (&*self.namespace, &self.passed);
        if own != namespace {
            let rule = format!("is for the namespace {own:?}; the locker's is {namespace:?}");
            return Err(bad(rule));
        }
        if let Some(name) = name.filter(|name| **name != passed.name) {
            let rule = format!("is for the lock {:?}, not for {name:?}", passed.name);
            return Err(bad(rule));
        }
        Ok(passed)
    }
}

/// Returns an error about a ticket. The rule must not repeat the ticket's text.
fn bad(rule: impl AsRef<str>) -> Error {
    Error::bad_option("the ticket", rule)
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Passed {
            name,
            lease,
            token,
            ttl,
            ends,
        } = &self.passed;
        let [namespace, name] = [&*self.namespace, name.as_str()].map(escaped);
        let (ttl, ends) = (in_parts(*ttl, MILLIS), ends.map_or(0, ServerTime::millis));
        let token = token.get();
        write!(
            f,
            "{BEGIN}{VERSION}:{namespace}:{name}:{token}:{ttl}:{ends}:{lease}"
        )
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Error::check_length("a ticket", text, Self::MAX_BYTES)?;
        let mut parts = text.strip_prefix(BEGIN).unwrap_or_default().split(':');
        if parts.next() != Some(VERSION) {
            return Err(bad(OTHER));
        }
        let [
            Some(namespace),
            Some(name),
            Some(token),
            Some(ttl),
            Some(ends),
            Some(lease),
            None,
        ] = [(); 7].map(|()| parts.next())
        else {
            return Err(bad(
                "must have 8 parts between colons; some are missing, or there are more",
            ));
        };
        let number = |what: &str, part| {
            let damaged = || bad(format!("must have a number as its {what}; it is damaged"));
            digits::plain(part).ok_or_else(damaged)
        };
        let [namespace, name] = [unescaped(namespace)?, unescaped(name)?];
        LockKey::check_namespace(&namespace)?;
        let ttl = Duration::from_millis(number("time to live", ttl)?);
        LockSpec::check_ttl(ttl)?;
        let ends = number("end", ends)?;
        let passed = Passed {
            name: Name::new(name)?,
            lease: lease_of(lease)?,
            token: FencingToken::new(number("token", token)?)?,
            ttl,
            ends: (ends > 0).then(|| ServerTime::from_millis(ends)),
        };
        Ok(Self::new(namespace, passed))
    }
}

/// Reads a lease ID. The one of retired tenures is refused: it is no secret, and nobody can pass such a tenure on.
fn lease_of(text: &str) -> Result<LeaseId, Error> {
    let plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_whole = text.len() == LEASE_LENGTH && text.bytes().all(plain);
    let lease = text.parse().ok().filter(|_| is_whole);
    let lease = lease.filter(|lease| *lease != Retire::NO_LEASE);
    lease.ok_or_else(|| bad("must end with the ID of a lease; it is cut off or damaged"))
}

/// Returns the text with each byte that could end a part or a line as `%` and two digits.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            escaped.push(char::from(byte));
        } else {
            let digit = |four| char::from(b"0123456789ABCDEF"[usize::from(four)]);
            escaped.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    escaped
}

fn unescaped(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16)?.try_into().ok();
        bytes.push(match byte {
            b'%' => digit()
                .zip(digit())
                .map(|(high, low): (u8, u8)| high << 4 | low),
            byte => Some(byte),
        });
    }
    let bytes = bytes.into_iter().collect::<Option<Vec<u8>>>();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| bad("must have escaped UTF-8 as its names; it is damaged"))
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("name", self.name())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

impl Serialize for Ticket {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ticket {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const LEASE: &str = "00112233445566778899aabbccddeeff";

    fn ticket(namespace: &str, name: &str) -> Ticket {
        let passed = Passed {
            name: Name::new(name).expect("a short name is valid"),
            lease: LEASE.parse().expect("it is hexadecimal"),
            token: FencingToken::MAX,
            ttl: LockSpec::MAX_TTL,
            ends: Some(ServerTime::from_millis(4_102_444_800_000)),
        };
        Ticket::new(namespace, passed)
    }

    /// Catches a name that ends a part or a line, and a bound that the longest ticket exceeds.
    #[test]
    fn every_ticket_is_one_line_and_reads_back() {
        for name in ["a", "a:b%c/ö\n\"\\ {}", &"%".repeat(512), &"€".repeat(170)] {
            let ticket = ticket(&":".repeat(128), name);
            let text = ticket.to_string();
            assert!(text.len() <= Ticket::MAX_BYTES, "{} bytes", text.len());
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
            assert_eq!(text.parse::<Ticket>().as_ref(), Ok(&ticket));
            let json = serde_json::to_string(&ticket).expect("a ticket serializes");
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(
                serde_json::from_str::<Ticket>(&json).expect("it is a ticket"),
                ticket
            );
        }
    }

    /// Catches a text that is read as another ticket, a panic, and an error that tells the secret.
    #[test]
    fn a_damaged_ticket_is_refused_without_its_secret() {
        let whole = ticket("app", "orders/42").to_string();
        let cut = (0..whole.len()).map(|length| whole[..length].to_owned());
        let replaced = [
            whole.replace(":1:", ":2:"),
            whole.replace(":1:", ":1:x:"),
            whole.replace("%2F", "%2G"),
            whole.replace("%2F", "%+F"),
            whole.replace("%2F", "%FF"),
            whole.replace("app", ""),
            whole.replace("app", &"x".repeat(129)),
            whole.replace("orders%2F42", ""),
            whole.replace(":9007199254740991:", ":0:"),
            whole.replace(":9007199254740991:", ":+7:"),
            whole.replace(":9007199254740991:", ":99999999999999999999:"),
            whole.replace(":31622400000:", ":9:"),
            whole.replace(":31622400000:", "::"),
            whole.replace(":4102444800000:", ":-1:"),
            whole.replace(LEASE, &LEASE.to_uppercase()),
            whole.replace(LEASE, &format!("+{}", &LEASE[1..])),
            whole.replace(LEASE, &"0".repeat(32)),
            format!("{whole}0"),
            format!("{whole}\n"),
            format!(" {whole}"),
            format!("{whole}:"),
            whole.replace("orders", &"x".repeat(3_000)),
            "€".repeat(100),
        ];
        for text in cut.chain(replaced) {
            assert_ne!(text, whole);
            let error = text.parse::<Ticket>().expect_err(&text);
            assert_eq!(error.kind(), ErrorKind::Config, "{text}");
            let shown = format!("{error} {error:?}").to_lowercase();
            assert!(!shown.contains(&LEASE[1..20]), "{shown}");
        }
    }

    #[test]
    fn a_ticket_is_for_one_namespace_and_one_name() {
        let ticket = ticket("app", "orders/42");
        let [own, other] = ["orders/42", "orders/43"].map(|name| Name::new(name).ok());
        assert!(ticket.passed("app", own.as_ref()).is_ok() && ticket.passed("app", None).is_ok());
        let error = ticket
            .passed("app", other.as_ref())
            .expect_err("another name");
        let told = "the ticket is for the lock \"orders/42\", not for \"orders/43\"";
        assert_eq!(error.to_string(), told);
        let error = ticket.passed("shop", None).expect_err("another namespace");
        let told = "the ticket is for the namespace \"app\"; the locker's is \"shop\"";
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (ErrorKind::Config, told)
        );
    }
}
