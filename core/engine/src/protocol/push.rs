//! Pushes: messages that the store sends to a client without being asked.

use std::fmt;

use super::claim::{ClientId, HalfId, LeaseId};
use super::key::{LockKey, escape};
use super::reply::Grant;
use super::sha1::sha1;
use crate::digits;
use crate::error::{Error, ErrorKind};
use crate::time::ServerTime;
use crate::token::FencingToken;

/// Returns the channel of a client, on which it gets the pushes for all its locks. The namespace is escaped
/// as in keys, so that an ACL can grant channels by namespace.
///
/// ```
/// use leasehold_engine::protocol::{channel, ClientId};
///
/// assert_eq!(channel("shop:eu", ClientId(0xc0ffee)), "leasehold:shop%3Aeu:0000000000c0ffee");
/// ```
pub fn channel(namespace: &str, client: ClientId) -> String {
    let mut channel = "leasehold:".to_owned();
    escape(namespace, true, &mut channel);
    channel.push(':');
    channel.push_str(&client.to_string());
    channel
}

/// Returns the channel on which a [client with shard subscriptions](ClientId::at_shards) gets the pushes for
/// one lock. The channel is in the lock's cluster slot, so it stays with the node that serves the lock.
///
/// ```
/// use leasehold_engine::{protocol::{channel, shard_channel, ClientId, LockKey}, Name};
///
/// let key = LockKey::new("shop", &Name::new("orders/42")?)?;
/// let channel = channel("shop", ClientId::at_shards(1));
/// assert_eq!(shard_channel(&channel, &key), "leasehold:shop:8000000000000001:{shop:orders/42}");
/// # Ok::<(), leasehold_engine::Error>(())
/// ```
pub fn shard_channel(channel: &str, key: &LockKey) -> String {
    format!("{channel}:{}", key.lock())
}

/// A message on a client's [channel]. Anybody may publish and subscribe there, so a push names only half of
/// its lease ID. It is sealed with the whole ID, which only users who may read the lock's key know: nobody
/// else can make a push that [opens](Self::open).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Push {
    /// The public half of the ID of the lease that the push is for.
    pub lease: HalfId,
    /// The event. Trust it only after [`open`](Self::open) has checked the seal.
    pub news: News,
    seal: [u8; 20],
}

/// The event that a [`Push`] reports.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// A release handed the lock to this lease, which waited in line.
    Granted {
        /// The lease's token, and when the lock expires unless the holder renews it.
        grant: Grant,
        /// The server's clock when it granted the lock.
        time: ServerTime,
    },
    /// A forced release took the lock from its holder.
    Revoked {
        /// The holder's token.
        token: FencingToken,
    },
    /// The tick for which this lease waited was completed by another turn.
    Completed {
        /// The token of that turn.
        token: FencingToken,
    },
    /// The holder's owner reclaimed the lock at another client.
    Superseded {
        /// The former holder's token.
        token: FencingToken,
    },
    /// Somebody asked the holder to yield. Its next renewal says who did, and until when.
    Wanted {
        /// The holder's token.
        token: FencingToken,
    },
}

impl Push {
    /// Makes a push with its seal, as the store does.
    pub fn new(lease: LeaseId, news: News) -> Self {
        let half = lease.half();
        let seal = seal(lease, half, news);
        Self {
            lease: half,
            news,
            seal,
        }
    }

    /// Returns the event if the push is for this lease and the store made it, and `None` otherwise.
    ///
    /// ```
    /// use leasehold_engine::protocol::{LeaseId, News, Push};
    /// use leasehold_engine::FencingToken;
    ///
    /// let (lease, news) = (LeaseId(42), News::Revoked { token: FencingToken::new(7)? });
    /// assert_eq!(Push::new(lease, news).open(lease), Some(news));
    /// assert_eq!(Push::new(lease, news).open(LeaseId(43)), None);
    /// # Ok::<(), leasehold_engine::Error>(())
    /// ```
    pub fn open(&self, lease: LeaseId) -> Option<News> {
        // A comparison in constant time is not needed: nobody gets a reply to a push.
        (self.seal == seal(lease, self.lease, self.news)).then_some(self.news)
    }
}

/// Formats the push as it is published.
impl fmt::Display for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_news(self.lease, self.news, f)?;
        f.write_str(":")?;
        self.seal
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads a message from a client's channel. Returns an error of kind [`Store`](ErrorKind::Store) if the form
/// is not exactly that of a push, because anybody may publish there. Only [`Push::open`] tells whether the
/// push is genuine.
///
/// ```
/// use leasehold_engine::protocol::{decode_push, LeaseId, News, Push};
/// use leasehold_engine::FencingToken;
///
/// let sent = Push::new(LeaseId(42), News::Revoked { token: FencingToken::new(7)? });
/// assert_eq!(decode_push(sent.to_string().as_bytes())?, sent);
/// # Ok::<(), leasehold_engine::Error>(())
/// ```
pub fn decode_push(message: &[u8]) -> Result<Push, Error> {
    read(message).ok_or_else(|| {
        let message = "a message on this client's channel is not a valid push";
        Error::new(ErrorKind::Store, message)
    })
}

fn seal(lease: LeaseId, half: HalfId, news: News) -> [u8; 20] {
    struct Sealed(LeaseId, HalfId, News);
    impl fmt::Display for Sealed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}:", self.0)?;
            write_news(self.1, self.2, f)
        }
    }
    sha1(&Sealed(lease, half, news).to_string())
}

fn write_news(half: HalfId, news: News, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match news {
        News::Granted { grant, time } => {
            let (token, expires) = (grant.token, grant.expires.millis());
            write!(f, "granted:{half}:{token}:{expires}:{}", time.as_micros())
        }
        News::Revoked { token } => write!(f, "revoked:{half}:{token}"),
        News::Completed { token } => write!(f, "completed:{half}:{token}"),
        News::Superseded { token } => write!(f, "superseded:{half}:{token}"),
        News::Wanted { token } => write!(f, "wanted:{half}:{token}"),
    }
}

fn read(message: &[u8]) -> Option<Push> {
    let mut fields = std::str::from_utf8(message).ok()?.split(':');
    let what = fields.next()?;
    let lease = HalfId(u64::from_be_bytes(bytes(fields.next()?)?));
    let token = fields.next()?.parse().ok()?;
    let news = match what {
        "granted" => {
            let expires = ServerTime::from_millis(digits::plain(fields.next()?)?);
            let time = ServerTime::from_micros(digits::plain(fields.next()?)?);
            let grant = Grant { token, expires };
            News::Granted { grant, time }
        }
        "revoked" => News::Revoked { token },
        "completed" => News::Completed { token },
        "superseded" => News::Superseded { token },
        "wanted" => News::Wanted { token },
        _ => return None,
    };
    let seal = bytes(fields.next()?)?;
    let push = Push { lease, news, seal };
    fields.next().is_none().then_some(push)
}

/// Reads exactly `N` bytes in hexadecimal.
fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = u8::try_from(value(*high)? * 16 + value(*low)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: LeaseId = LeaseId(0x0123_4567_89ab_cdef_0000_0000_0000_00ff);

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).expect("a valid token")
    }

    fn news() -> [News; 5] {
        let grant = Grant {
            token: token(7),
            expires: ServerTime::from_millis(1_700_000_000_123),
        };
        let time = ServerTime::from_micros(1_700_000_000_000_456);
        [
            News::Granted { grant, time },
            News::Revoked { token: token(7) },
            News::Superseded { token: token(7) },
            News::Completed { token: token(7) },
            News::Wanted { token: token(7) },
        ]
    }

    /// The expected seal is from `redis.sha1hex`.
    #[test]
    fn a_message_is_read_as_it_was_written() {
        let grant = b"granted:0123456789abcdef:7:1700000000123:1700000000000456:\
                      abba7e17a0c2ed111565b1dd01fddd79e78c5e1c";
        assert_eq!(decode_push(grant), Ok(Push::new(LEASE, news()[0])));
        for news in news() {
            let sent = Push::new(LEASE, news);
            let read = decode_push(sent.to_string().as_bytes());
            assert_eq!(read, Ok(sent));
            assert_eq!(read.ok().and_then(|push| push.open(LEASE)), Some(news));
        }
    }

    /// Catches a seal that does not cover the whole message, or that half a lease ID suffices to make.
    #[test]
    fn changed_or_forged_pushes_do_not_open() {
        for news in news() {
            let sent = Push::new(LEASE, news).to_string();
            for at in 0..sent.len() {
                let mut forged = sent.clone().into_bytes();
                forged[at] = if forged[at] == b'1' { b'2' } else { b'1' };
                let opened = decode_push(&forged).ok().and_then(|push| push.open(LEASE));
                assert_eq!(opened, None, "{:?}", String::from_utf8_lossy(&forged));
            }
            let half = LeaseId(u128::from(LEASE.half().0) << 64);
            assert_eq!(Push::new(half, news).open(LEASE), None);
            let other = LeaseId(LEASE.0 ^ 1);
            assert_eq!(Push::new(LEASE, news).open(other), None);
        }
    }

    #[test]
    fn malformed_pushes_are_errors() {
        let seal = "0".repeat(40);
        let lease = "00000000000000ff";
        let cases = [
            String::new(),
            "granted".to_owned(),
            format!("revoked:ff:7:{seal}"),
            format!("revoked:{lease}:0:{seal}"),
            format!("revoked:{lease}:7"),
            format!("revoked:{lease}:7:{}", "0".repeat(38)),
            format!("revoked:{lease}:7:{}", "0".repeat(39)),
            format!("revoked:{lease}:7:{}", "0".repeat(41)),
            format!("revoked:{lease}:7:{}", "g".repeat(40)),
            format!("revoked:{lease}:7:+{}", "0".repeat(39)),
            format!("revoked:{lease}:7:{seal}:8"),
            format!("revoked:00000000000000zz:7:{seal}"),
            format!("granted:{lease}:7:1:{seal}"),
            format!("granted:{lease}:7:-1:2:{seal}"),
            format!("given:{lease}:7:{seal}"),
            format!("revoked:\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}:7:{seal}"),
        ];
        for message in cases {
            let read = decode_push(message.as_bytes());
            assert!(read.is_err(), "{message:?} was accepted");
        }
        assert!(decode_push(b"\xff\xfe").is_err());
    }
}
