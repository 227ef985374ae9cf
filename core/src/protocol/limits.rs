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
    /// How long the line's keys are kept after the last claim in it counts as dead.
    LINGER_MS: u64 = 60_000;
    /// The greatest token.
    MAX_TOKEN: u64 = FencingToken::MAX.get();
    /// How many digits the greatest token has, and a clock in microseconds until the year 2286.
    TOKEN_LENGTH: u32 = MAX_TOKEN.ilog10() + 1;
    /// How long a lease id is in the store, as a text.
    LEASE_LENGTH: usize = size_of::<LeaseId>() * 2;
    /// How long the half of it is that a push names.
    HALF_LENGTH: usize = size_of::<HalfId>() * 2;
    /// How long the id of a client is in the store.
    CLIENT_LENGTH: usize = size_of::<ClientId>() * 2;
    /// Where a lock's token begins, and a claim's window, counted from 1: after `lease:client:`.
    AFTER_CLIENT: usize = LEASE_LENGTH + CLIENT_LENGTH + 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a width that is not that of the text.
    #[test]
    fn ids_are_as_long_as_the_script_expects() {
        let (lease, client) = (LeaseId(0), ClientId(u64::MAX));
        assert_eq!(lease.to_string().len(), LEASE_LENGTH);
        assert_eq!(lease.half().to_string().len(), HALF_LENGTH);
        assert_eq!(client.to_string().len(), CLIENT_LENGTH);
        assert_eq!(format!("{lease}:{client}:").len() + 1, AFTER_CLIENT);
        let digits = FencingToken::MAX.to_string().len();
        assert_eq!(u32::try_from(digits).ok(), Some(TOKEN_LENGTH));
    }
}
