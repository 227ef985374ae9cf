//! Fencing tokens.

#[cfg(feature = "sqlx")]
mod sqlx;

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digits;
use crate::error::{Error, ErrorKind};

/// A number that tells a newer holder of a name from an older one.
///
/// Every acquisition of a name gets a strictly greater token than the one before it. So storage that
/// remembers the greatest token it has seen can refuse a client that was replaced. Tokens are from 1 to
/// 2^53-1 and so fit a Redis integer, a Lua number, a JavaScript number and JSON.
///
/// By default a token is at least the server's clock in microseconds. So tokens grow even if the store lost
/// its data, but not in steps of one. Dense tokens, by `Lock::dense_tokens`, grow in steps of one and restart
/// if the store loses its data.
///
/// The idea is Martin Kleppmann's, "How to do distributed locking" (2016).
///
/// ```
/// # use leasehold_engine as leasehold;
/// use leasehold::FencingToken;
///
/// let older = FencingToken::new(33)?;
/// let newer: FencingToken = "34".parse()?;
/// assert!(older < newer);
/// assert_eq!(newer.get(), 34);
/// assert!(FencingToken::new(0).is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The greatest token, 2^53-1.
    pub const MAX: FencingToken = match NonZeroU64::new((1 << 53) - 1) {
        Some(value) => FencingToken(value),
        None => unreachable!(),
    };

    /// Makes a token from a number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if the number is 0 or above [`MAX`](Self::MAX).
    pub fn new(value: u64) -> Result<Self, Error> {
        match NonZeroU64::new(value) {
            Some(value) if value <= Self::MAX.0 => Ok(Self(value)),
            _ => Err(Error::new(
                ErrorKind::Config,
                format!(
                    "a fencing token must be from 1 to {}; got {value}",
                    Self::MAX
                ),
            )),
        }
    }

    /// Returns the token as a number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = Error;

    fn try_from(value: u64) -> Result<Self, Error> {
        Self::new(value)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.get()
    }
}

/// Writes the token in plain decimal digits.
#[cfg(feature = "http")]
impl From<FencingToken> for http::HeaderValue {
    fn from(token: FencingToken) -> Self {
        token.get().into()
    }
}

impl FromStr for FencingToken {
    type Err = Error;

    /// Reads plain decimal digits: no sign, no blanks, no leading zero.
    fn from_str(text: &str) -> Result<Self, Error> {
        match digits::plain(text) {
            Some(value) if !text.starts_with('0') => Self::new(value),
            _ => Err(Error::new(
                ErrorKind::Config,
                format!(
                    "a fencing token must be plain digits from 1 to {}",
                    Self::MAX
                ),
            )),
        }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencingToken({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_javascript_can_hold_are_tokens() {
        assert!(FencingToken::new(0).is_err());
        assert!(FencingToken::new(1).is_ok());
        assert_eq!(
            FencingToken::new((1 << 53) - 1).ok(),
            Some(FencingToken::MAX)
        );
        assert!(FencingToken::new(1 << 53).is_err());
    }

    #[test]
    fn text_is_read_strictly() {
        for bad in [
            "",
            "0",
            "-1",
            "+1",
            " 1",
            "1 ",
            "01",
            "1e3",
            "9007199254740992",
            "٣",
        ] {
            assert!(bad.parse::<FencingToken>().is_err(), "{bad:?} was taken");
        }
        assert_eq!(
            "9007199254740991".parse::<FencingToken>().ok(),
            Some(FencingToken::MAX)
        );
    }

    #[test]
    fn json_is_a_number_and_is_checked() {
        let token = FencingToken::new(7).expect("7 is a token");
        assert_eq!(
            serde_json::to_string(&token).expect("a token serializes"),
            "7"
        );
        assert!(serde_json::from_str::<FencingToken>("0").is_err());
    }
}
