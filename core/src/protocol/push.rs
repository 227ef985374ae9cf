//! What the store tells a client without being asked.

use super::command::{ClientId, Held, LeaseId, Push};
use crate::error::{Error, ErrorKind};
use crate::time::ServerTime;

/// The channel on which a client is told: one for all its locks.
///
/// ```
/// use leasehold::protocol::{channel, ClientId};
///
/// assert_eq!(channel(ClientId(0xc0ffee)), "leasehold:0000000000c0ffee");
/// ```
pub fn channel(client: ClientId) -> String {
    format!("leasehold:{client}")
}

/// Reads a message of that channel. What is not exactly of the expected form is an error of kind
/// [`Store`](ErrorKind::Store): anybody may publish.
///
/// ```
/// use leasehold::protocol::{decode_push, LeaseId, Push};
///
/// let push = decode_push(b"revoked:0000000000000000000000000000002a:34")?;
/// assert!(matches!(push, Push::Revoked { lease: LeaseId(42), token } if token.get() == 34));
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn decode_push(message: &[u8]) -> Result<Push, Error> {
    read(message).ok_or_else(|| {
        let message = "a message that is not of the lock protocol came on this client's channel";
        Error::new(ErrorKind::Store, message)
    })
}

fn read(message: &[u8]) -> Option<Push> {
    let mut fields = std::str::from_utf8(message).ok()?.split(':');
    let what = fields.next()?;
    let lease = lease(fields.next()?)?;
    let token = fields.next()?.parse().ok()?;
    let push = match what {
        "granted" => {
            let expires = ServerTime::from_millis(number(fields.next()?)?);
            let time = ServerTime::from_micros(number(fields.next()?)?);
            let held = Held { token, expires };
            Push::Granted { lease, held, time }
        }
        "revoked" => Push::Revoked { lease, token },
        "superseded" => Push::Superseded { lease, token },
        _ => return None,
    };
    fields.next().is_none().then_some(push)
}

fn lease(digits: &str) -> Option<LeaseId> {
    let hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.parse().ok().filter(|_| hex)
}

fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read() {
        let message = b"granted:000000000000000000000000000000ff:7:1700000000123:1700000000000456";
        let held = Held {
            token: crate::FencingToken::new(7).expect("a valid token"),
            expires: ServerTime::from_millis(1_700_000_000_123),
        };
        let time = ServerTime::from_micros(1_700_000_000_000_456);
        let lease = LeaseId(0xff);
        assert_eq!(
            decode_push(message),
            Ok(Push::Granted { lease, held, time })
        );
    }

    #[test]
    fn anything_else_is_an_error() {
        let cases: [&[u8]; 10] = [
            b"",
            b"granted",
            b"revoked:ff:7",
            b"revoked:000000000000000000000000000000ff:0",
            b"revoked:000000000000000000000000000000ff:7:8",
            b"revoked:0000000000000000000000000000zzff:7",
            b"granted:000000000000000000000000000000ff:7:1:",
            b"granted:000000000000000000000000000000ff:7:-1:2",
            b"given:000000000000000000000000000000ff:7",
            b"\xff\xfe",
        ];
        for message in cases {
            assert!(decode_push(message).is_err(), "{message:?} was taken");
        }
    }
}
