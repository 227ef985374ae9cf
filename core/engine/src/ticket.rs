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
/// let text = "leasehold-ticket:1:app:orders/42:1764230000000000:30000:0:00112233445566778899aabbccddeeff";
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

/// The first characters of every ticket. They end with the version of the format.
const BEGIN: &str = "leasehold-ticket:1:";

/// The rules that a text may break.
const OTHER: &str =
    "must begin with `leasehold-ticket:1:`; the text is something else, or of another version";
const CUT_OFF: &str =
    "must have 8 parts and end with the ID of a lease; the text is cut off or damaged";
const DAMAGED: &str = "has a part that no ticket has; the text is damaged";

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
    /// # let text = "leasehold-ticket:1:app:orders/42:7:30000:0:00112233445566778899aabbccddeeff";
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
    /// # let text = "leasehold-ticket:1:app:orders/42:7:30000:0:00112233445566778899aabbccddeeff";
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
        let differs = if own == namespace {
            let name = name.filter(|name| **name != passed.name);
            name.map(|name| ("lock", passed.name.as_str(), name.as_str()))
        } else {
            Some(("namespace", own, namespace))
        };
        if let Some((what, own, other)) = differs {
            // As they stand in tickets: a text from elsewhere might otherwise fake a line of a log.
            let [own, other] = [own, other].map(escaped);
            return Err(bad(format!("is for the {what} {own}, not for {other}")));
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
        f.write_str(&self.to_text())
    }
}

/// The text. It is made and read by hand, because formatting and parsing in general is several times as much code
/// in WebAssembly.
impl Ticket {
    fn to_text(&self) -> String {
        let Passed {
            name,
            lease,
            token,
            ttl,
            ends,
        } = &self.passed;
        let mut text = BEGIN.to_owned();
        for part in [&*self.namespace, name.as_str()] {
            text.push_str(&escaped(part));
            text.push(':');
        }
        let ends = ends.map_or(0, ServerTime::millis);
        for number in [token.get(), in_parts(*ttl, MILLIS), ends] {
            text.push_str(&number.to_string());
            text.push(':');
        }
        for byte in lease.0.to_be_bytes() {
            push_hex(byte, &mut text);
        }
        text
    }

    /// Reads the parts of a text. The error is the rule that the text breaks.
    fn of_text(text: &str) -> Result<Self, &'static str> {
        let mut rest = text.strip_prefix(BEGIN).ok_or(OTHER)?;
        let mut part = || {
            let (part, after) = rest.split_once(':').ok_or(CUT_OFF)?;
            rest = after;
            Ok::<_, &'static str>(part)
        };
        let [namespace, name] = [part()?, part()?].map(unescape);
        let [token, ttl, ends] = [part()?, part()?, part()?].map(digits::plain);
        let lease = lease_of(rest).ok_or(CUT_OFF)?;
        let (namespace, name) = namespace.zip(name).ok_or(DAMAGED)?;
        let (token, ttl) = token.zip(ttl).ok_or(DAMAGED)?;
        let ends = ends.ok_or(DAMAGED)?;
        let ttl = Duration::from_millis(ttl);
        let is_sound = LockKey::check_namespace(&namespace).is_ok()
            && (LockSpec::MIN_TTL..=LockSpec::MAX_TTL).contains(&ttl);
        let (Ok(name), Ok(token), true) = (Name::new(name), FencingToken::new(token), is_sound)
        else {
            return Err(DAMAGED);
        };
        let passed = Passed {
            name,
            lease,
            token,
            ttl,
            ends: (ends > 0).then(|| ServerTime::from_millis(ends)),
        };
        Ok(Self::new(namespace, passed))
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Error::check_length("a ticket", text, Self::MAX_BYTES)?;
        Self::of_text(text).map_err(bad)
    }
}

/// Reads a lease ID. The one of retired tenures is refused: it is no secret, and nobody can pass such a tenure on.
fn lease_of(text: &str) -> Option<LeaseId> {
    let (mut lease, mut digits) = (0_u128, 0);
    for byte in text.bytes() {
        lease = lease << 4 | u128::from(hex_digit(byte)?);
        digits += 1;
    }
    let lease = (digits == LEASE_LENGTH).then_some(LeaseId(lease));
    lease.filter(|lease| *lease != Retire::NO_LEASE)
}

/// Returns the text with each byte that could end a part or a line as `%` and two digits.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/') {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            push_hex(byte, &mut escaped);
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex_digit(rest.next()?)? << 4 | hex_digit(rest.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn push_hex(byte: u8, text: &mut String) {
    for four in [byte >> 4, byte & 15] {
        text.push(char::from(b"0123456789abcdef"[usize::from(four)]));
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
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
        serializer.serialize_str(&self.to_text())
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
        let whole = ticket("app", "orders:42").to_string();
        let cut = (0..whole.len()).map(|length| whole[..length].to_owned());
        let replaced = [
            whole.replace(":1:", ":2:"),
            whole.replace(":1:", ":1:x:"),
            whole.replace("%3a", "%3g"),
            whole.replace("%3a", "%+f"),
            whole.replace("%3a", "%3A"),
            whole.replace("%3a", "%ff"),
            whole.replace("app", ""),
            whole.replace("app", &"x".repeat(129)),
            whole.replace("orders%3a42", ""),
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
        let told = "the ticket is for the lock orders/42, not for orders/43";
        assert_eq!(error.to_string(), told);
        let error = ticket.passed("shop", None).expect_err("another namespace");
        let told = "the ticket is for the namespace app, not for shop";
        assert_eq!(
            (error.kind(), &*error.to_string()),
            (ErrorKind::Config, told)
        );
    }
}
