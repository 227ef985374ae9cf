//! The numbers that the script and this crate share. Lua has them by the same names:
//! [`script`](super::script) puts the numbers in their place.

use super::claim::{ClientId, HalfId, LeaseId};
use crate::token::FencingToken;

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $kind:ty = $value:expr;)*) => {
        $($(#[$doc])* pub(crate) const $name: $kind = $value;)*

        /// Every limit by its name.
        pub(super) const ALL: &[(&str, u64)] = &[$((stringify!($name), $name as u64),)*];
    };
}

limits! {
    /// How many may wait for one lock.
    MAX_WAITERS: usize = 65_536;
    /// How many who died in line one operation passes by, so that none takes long.
    MOST_SKIPPED: usize = 1_000;
    /// How many of the dead one newcomer clears out of the line.
    MOST_CLEARED: usize = 100;
    /// How many keys one step of a walk over the locks looks at, about.
    MOST_SCANNED: usize = 1_000;
    /// The longest window of a claim, in milliseconds: none holds up those behind it for longer.
    LONGEST_WINDOW_MS: u64 = 60_000;
    /// How long the line's key is kept after the last claim in it counts as dead.
    LINGER_MS: u64 = 60_000;
    /// The expiry of a name's key is set anew about this often.
    KEPT_STEP_MS: u64 = 1_000_000;
    /// How many digits of a token say in which of these steps of the clock it was given.
    KEPT_STEP_DIGITS: usize = TOKEN_LENGTH - 9;
    /// A token that is proposed is not as far as this from the server's clock, in microseconds.
    MOST_APART_US: u64 = 100_000;
    /// What the key is kept for beyond the retention, so that it outlives every lease meanwhile.
    KEPT_LONGER_MS: u64 = 2 * KEPT_STEP_MS;
    /// With a shorter retention, or a longer time to live, that is not enough, and the expiry is set
    /// each time.
    LEAST_PLAIN_RETENTION_MS: u64 = 3_600_000;
    MOST_PLAIN_TTL_MS: u64 = 3_600_000;
    /// The greatest token.
    MAX_TOKEN: u64 = FencingToken::MAX.get();
    /// How many digits the greatest token has, and a clock in microseconds until the year 2286.
    TOKEN_LENGTH: usize = MAX_TOKEN.ilog10() as usize + 1;
    /// How many digits a clock has in milliseconds, until the same year.
    EXPIRY_LENGTH: usize = TOKEN_LENGTH - 3;
    /// How many digits the longest times have in milliseconds: a year, and a window.
    TIME_LENGTH: usize = 11;
    WINDOW_LENGTH: usize = 5;
    /// How long a lease id is in the store, as a text; an incarnation is as long.
    LEASE_LENGTH: usize = size_of::<LeaseId>() * 2;
    /// How long the half of it is that a push names.
    HALF_LENGTH: usize = size_of::<HalfId>() * 2;
    /// How long the id of a client is in the store.
    CLIENT_LENGTH: usize = size_of::<ClientId>() * 2;
    /// The first digit of a client that listens at shards, or a later one.
    FIRST_AT_SHARDS: u64 = 8;
    /// Where the parts of a claim begin, counted from 1: its time to live is the first.
    CLAIM_WINDOW: usize = 1 + TIME_LENGTH;
    CLAIM_RETENTION: usize = CLAIM_WINDOW + WINDOW_LENGTH;
    CLAIM_LEASE: usize = CLAIM_RETENTION + TIME_LENGTH;
    CLAIM_CLIENT: usize = CLAIM_LEASE + LEASE_LENGTH;
    CLAIM_KIND: usize = CLAIM_CLIENT + CLIENT_LENGTH;
    CLAIM_LABEL: usize = CLAIM_KIND + 1;
    /// Where the parts of a tenure's field begin, and how long it is: its lease is the first.
    FIELD_TOKEN: usize = 1 + LEASE_LENGTH;
    FIELD_LENGTH: usize = LEASE_LENGTH + TOKEN_LENGTH;
    /// Where the parts of a tenure's value begin: its expiry is the first.
    VALUE_CLIENT: usize = 1 + EXPIRY_LENGTH;
    VALUE_KIND: usize = VALUE_CLIENT + CLIENT_LENGTH;
    VALUE_LABEL: usize = VALUE_KIND + 1;
    /// Where the parts of an operation begin: its letter and its time to live are the first.
    OP_TTL: usize = 2;
    OP_REST: usize = OP_TTL + TIME_LENGTH;
    /// Of an acquisition: whether it waits, what it takes over, and the claim but for its time to live.
    ACQUIRE_RECLAIMS: usize = OP_REST + 1;
    ACQUIRE_CLAIM: usize = ACQUIRE_RECLAIMS + TOKEN_LENGTH;
    ACQUIRE_RETENTION: usize = ACQUIRE_CLAIM + WINDOW_LENGTH;
    ACQUIRE_LEASE: usize = ACQUIRE_RETENTION + TIME_LENGTH;
    ACQUIRE_CLIENT: usize = ACQUIRE_LEASE + LEASE_LENGTH;
    ACQUIRE_OWNER: usize = ACQUIRE_CLIENT + CLIENT_LENGTH;
    /// Of a renewal: the retention, the tenure's field, and a floor, if it has one.
    RENEW_FIELD: usize = OP_REST + TIME_LENGTH;
    RENEW_FLOOR: usize = RENEW_FIELD + FIELD_LENGTH;
    /// Of a release: the claim, with the token behind its lease.
    RELEASE_FIELD: usize = OP_REST + WINDOW_LENGTH + TIME_LENGTH;
    RELEASE_TOKEN: usize = RELEASE_FIELD + LEASE_LENGTH;
    RELEASE_CLIENT: usize = RELEASE_TOKEN + TOKEN_LENGTH;
    /// Of an entry: the incarnation, and those that are to be known.
    ENTER_KNOWN: usize = OP_REST + LEASE_LENGTH;
    /// How many incarnations a server knows at the most. There must be more than a quorum has servers, so that it
    /// always knows one that is over once it had to forget some.
    MOST_KNOWN: usize = 256;
    /// How many incarnations that may not vote yet a server watches at the most.
    MOST_WATCHED: usize = 16;
    /// How many digits the cursor of a walk has.
    CURSOR_LENGTH: usize = u64::MAX.ilog10() as usize + 1;
    /// An arrival in the line, in microseconds, is greater than this, and a time in milliseconds less.
    LEAST_ARRIVAL: u64 = 1_000_000_000_000_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a width that is not that of the text.
    #[test]
    fn ids_are_as_long_as_the_script_expects() {
        let (lease, client) = (LeaseId(0), ClientId(u64::MAX));
        assert_eq!(lease.to_string().len(), LEASE_LENGTH);
        let incarnation = crate::protocol::Incarnation(0).to_string();
        assert_eq!(incarnation.len(), LEASE_LENGTH);
        assert_eq!(lease.half().to_string().len(), HALF_LENGTH);
        assert_eq!(client.to_string().len(), CLIENT_LENGTH);
        assert_eq!(FencingToken::MAX.to_string().len(), TOKEN_LENGTH);
        let year = crate::time::YEAR.as_millis().to_string();
        assert_eq!(year.len(), TIME_LENGTH);
        assert_eq!(LONGEST_WINDOW_MS.to_string().len(), WINDOW_LENGTH);
    }
}
