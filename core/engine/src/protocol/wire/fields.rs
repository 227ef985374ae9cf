//! Parses the fields of a reply. Servers are not trusted: anything that is not exactly of the expected form
//! is an error, never a guess.

use std::time::Duration;

use crate::digits;
use crate::error::{Error, ErrorKind};
use crate::name::Owner;
use crate::protocol::incarnation::Incarnation;
use crate::protocol::limits::{LEASE_LENGTH, MOST_KNOWN, TOKEN_LENGTH};
use crate::tick::Tick;
use crate::time::ServerTime;
use crate::token::FencingToken;

/// The fields of a reply that are still unread.
pub(in crate::protocol) struct Fields<'a, F> {
    pub(super) rest: &'a [F],
}

impl<'a, F: AsRef<[u8]>> Fields<'a, F> {
    fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let (first, rest) = self.rest.split_first().ok_or_else(unexpected)?;
        self.rest = rest;
        Ok(first.as_ref())
    }

    pub(in crate::protocol) fn text(&mut self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| unexpected())
    }

    /// Reads a field as text. If it is not UTF-8, keeps only ASCII and replaces other bytes.
    pub(in crate::protocol) fn lossy(&mut self) -> Result<String, Error> {
        let bytes = self.bytes()?;
        // `from_utf8_lossy` would add a kilobyte to the browser build, for texts that our script never sends.
        let ascii = |byte: &u8| {
            if byte.is_ascii() {
                char::from(*byte)
            } else {
                char::REPLACEMENT_CHARACTER
            }
        };
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().map(ascii).collect(),
        })
    }

    pub(in crate::protocol) fn number(&mut self) -> Result<u64, Error> {
        digits::plain(self.text()?).ok_or_else(unexpected)
    }

    /// Reads the server's time in microseconds, or `None` for `0`. The time has as many digits as a token
    /// from 2001 to 2286. Any other number is an error, because a time alone means that all operations of a
    /// batch succeeded.
    pub(super) fn time(&mut self) -> Result<Option<ServerTime>, Error> {
        let text = self.text()?;
        match (text, text.len()) {
            ("0", _) => Ok(None),
            (_, TOKEN_LENGTH) if !text.starts_with('0') => {
                let micros = digits::plain(text).ok_or_else(unexpected)?;
                Ok(Some(ServerTime::from_micros(micros)))
            }
            _ => Err(unexpected()),
        }
    }

    pub(in crate::protocol) fn millis(&mut self) -> Result<ServerTime, Error> {
        Ok(ServerTime::from_millis(self.number()?))
    }

    pub(in crate::protocol) fn token(&mut self) -> Result<FencingToken, Error> {
        // Tokens may have leading zeros.
        FencingToken::new(self.number()?).map_err(|_| unexpected())
    }

    /// Reads a token, or `None` for `0`.
    pub(in crate::protocol) fn token_or_none(&mut self) -> Result<Option<FencingToken>, Error> {
        if let Some((first, rest)) = self.rest.split_first()
            && first.as_ref() == b"0"
        {
            self.rest = rest;
            return Ok(None);
        }
        self.token().map(Some)
    }

    /// Reads a tick, or `None` for `0`. Ticks may have leading zeros.
    pub(in crate::protocol) fn tick_or_none(&mut self) -> Result<Option<Tick>, Error> {
        match self.number()? {
            0 => Ok(None),
            tick => Tick::new(tick).map(Some).map_err(|_| unexpected()),
        }
    }

    pub(in crate::protocol) fn count(&mut self) -> Result<u32, Error> {
        u32::try_from(self.number()?).map_err(|_| unexpected())
    }

    pub(in crate::protocol) fn owner(&mut self) -> Result<Owner, Error> {
        let (kind, text) = (self.text()?, self.lossy()?);
        Owner::of_stored(kind, &text).map_err(|_| unexpected())
    }

    pub(in crate::protocol) fn incarnation(&mut self) -> Result<Incarnation, Error> {
        read_incarnation(self.text()?)
    }

    /// Reads all other fields as incarnations, at most a few hundred. Those with an age after them are
    /// watched.
    pub(in crate::protocol) fn rest_as_incarnations(&mut self) -> Result<KnownAndWatched, Error> {
        let (mut known, mut watched) = (Vec::new(), Vec::new());
        while !self.rest.is_empty() && known.len() + watched.len() < 2 * MOST_KNOWN {
            let text = self.text()?;
            let (incarnation, age) = text.split_at_checked(LEASE_LENGTH).ok_or_else(unexpected)?;
            let incarnation = read_incarnation(incarnation)?;
            if age.is_empty() {
                insert(&mut known, incarnation);
            } else {
                let age = digits::plain(age).ok_or_else(unexpected)?;
                insert(&mut watched, (incarnation, Duration::from_millis(age)));
            }
        }
        Ok((known, watched))
    }

    /// Returns all other fields, except those that are not UTF-8.
    pub(in crate::protocol) fn rest_as_text(
        &mut self,
    ) -> impl Iterator<Item = &'a str> + use<'a, F> {
        let rest = std::mem::take(&mut self.rest);
        rest.iter()
            .filter_map(|field| std::str::from_utf8(field.as_ref()).ok())
    }

    /// Returns true if no field is left.
    pub(in crate::protocol) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn split(&mut self, count: usize) -> Result<Fields<'a, F>, Error> {
        let (own, rest) = self.rest.split_at_checked(count).ok_or_else(unexpected)?;
        self.rest = rest;
        Ok(Fields { rest: own })
    }

    /// Returns the index of the operation that the next fields are about, or `None` at the end. It must be at
    /// least `from`.
    pub(super) fn next_other(&mut self, from: usize, count: usize) -> Result<Option<usize>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let place = usize::try_from(self.number()?).ok();
        let place = place.and_then(|number| number.checked_sub(1));
        let known = place.filter(|place| (from..count).contains(place));
        known.map(Some).ok_or_else(unexpected)
    }

    pub(super) fn end(&self) -> Result<(), Error> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(unexpected())
        }
    }
}

type KnownAndWatched = (Vec<Incarnation>, Vec<(Incarnation, Duration)>);

/// Inserts an item into a sorted list, unless it is there already.
fn insert<T: Ord>(all: &mut Vec<T>, one: T) {
    if let Err(place) = all.binary_search(&one) {
        all.insert(place, one);
    }
}

fn read_incarnation(text: &str) -> Result<Incarnation, Error> {
    let plain = text.len() == LEASE_LENGTH && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.parse().ok().filter(|_| plain).ok_or_else(unexpected)
}

pub(in crate::protocol) fn unexpected() -> Error {
    Error::new(
        ErrorKind::Store,
        "the server's reply to the lock script is malformed; is there a proxy or \
         an incompatible server in between?",
    )
}
