//! The numbers that the Lua script and this crate share. The Lua source uses the same names:
//! [`script`](super::script) replaces them by the numbers.

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
    /// The most waiters of one lock.
    MAX_WAITERS: usize = 65_536;
    /// The most dead waiters that one operation skips, so that no operation takes long.
    MOST_SKIPPED: usize = 1_000;
    /// The most dead waiters that one new waiter removes from the line.
    MOST_CLEARED: usize = 100;
    /// About how many keys one step of a listing examines (the `COUNT` of `SCAN`).
    MOST_SCANNED: usize = 1_000;
    /// The longest window of a claim, in milliseconds: no waiter delays those behind it for longer.
    LONGEST_WINDOW_MS: u64 = 60_000;
    /// How long the line's key is kept after its last claim counts as dead.
    LINGER_MS: u64 = 60_000;
    /// About how often the expiry of a name's key is refreshed.
    KEPT_STEP_MS: u64 = 1_000_000;
    /// How many leading digits of a token tell in which of these steps of the clock it was given.
    KEPT_STEP_DIGITS: usize = TOKEN_LENGTH - 9;
    /// A server ignores a proposed token that is this far or farther from its clock, in microseconds.
    MOST_APART_US: u64 = 100_000;
    /// How much longer than the retention a key is kept, so that it outlives every lease of the meantime.
    KEPT_LONGER_MS: u64 = 2 * KEPT_STEP_MS;
    /// The bounds within which `KEPT_LONGER_MS` suffices. With a shorter retention or a longer time to live,
    /// the script sets the expiry each time.
    LEAST_PLAIN_RETENTION_MS: u64 = 3_600_000;
    MOST_PLAIN_TTL_MS: u64 = 3_600_000;
    /// The greatest token.
    MAX_TOKEN: u64 = FencingToken::MAX.get();
    /// The number of digits of the greatest token, and of a clock in microseconds until the year 2286.
    TOKEN_LENGTH: usize = MAX_TOKEN.ilog10() as usize + 1;
    /// The number of digits of the greatest tick.
    TICK_LENGTH: usize = TOKEN_LENGTH;
    /// The most units of a shared name, and the number of its digits.
    MOST_UNITS: u32 = 1_000_000_000;
    UNITS_LENGTH: usize = MOST_UNITS.ilog10() as usize + 1;
    /// The most slots of a semaphore, the number of digits of a slot, and the most slots of one permit.
    MOST_SLOTS: u32 = 10_000;
    SLOT_LENGTH: usize = 4;
    MOST_SLOTS_AT_ONCE: u32 = 64;
    /// The most waiters that one operation on a shared name admits.
    MOST_ADMITTED: usize = 64;
    /// Scores of the holders' sorted set from here on are times in milliseconds. Lower ones are free slots.
    LEAST_EXPIRY: u64 = 1_000_000;
    /// The number of digits of a clock in milliseconds, until the same year.
    EXPIRY_LENGTH: usize = TOKEN_LENGTH - 3;
    /// The number of digits of the longest time to live or retention, a year, in milliseconds.
    TIME_LENGTH: usize = 11;
    WINDOW_LENGTH: usize = 5;
    /// The length of a lease ID, and of an incarnation, as text in the store.
    LEASE_LENGTH: usize = size_of::<LeaseId>() * 2;
    /// The length of the half of a lease ID that a push names, as text.
    HALF_LENGTH: usize = size_of::<HalfId>() * 2;
    /// The length of a client ID as text in the store.
    CLIENT_LENGTH: usize = size_of::<ClientId>() * 2;
    /// The least first digit of the ID of a client that subscribes to shard channels.
    FIRST_AT_SHARDS: u64 = 8;
    /// Where the parts of a claim begin, counted from 1, as in Lua. Its time to live comes first.
    CLAIM_WINDOW: usize = 1 + TIME_LENGTH;
    CLAIM_RETENTION: usize = CLAIM_WINDOW + WINDOW_LENGTH;
    CLAIM_LEASE: usize = CLAIM_RETENTION + TIME_LENGTH;
    CLAIM_CLIENT: usize = CLAIM_LEASE + LEASE_LENGTH;
    CLAIM_KIND: usize = CLAIM_CLIENT + CLIENT_LENGTH;
    CLAIM_LABEL: usize = CLAIM_KIND + 1;
    /// Where the parts of a share begin, counted from the kind before them, and its length with the kind.
    SHARE_WEIGHT: usize = 1;
    SHARE_CAPACITY: usize = SHARE_WEIGHT + UNITS_LENGTH;
    SHARE_LENGTH: usize = SHARE_CAPACITY + UNITS_LENGTH;
    /// Where the parts of the record of a shared name begin, and its length. Its kind comes first.
    RECORD_CAPACITY: usize = 2;
    RECORD_EPOCH: usize = RECORD_CAPACITY + UNITS_LENGTH;
    RECORD_GENERATION: usize = RECORD_EPOCH + UNITS_LENGTH;
    RECORD_LENGTH: usize = RECORD_GENERATION + TOKEN_LENGTH - 1;
    /// Where the parts of the value of a permit begin. Its token comes first, and after its weight its slots,
    /// if it has some, and its label.
    PERMIT_CLIENT: usize = 1 + TOKEN_LENGTH;
    PERMIT_WEIGHT: usize = PERMIT_CLIENT + CLIENT_LENGTH;
    PERMIT_SLOTS: usize = PERMIT_WEIGHT + UNITS_LENGTH;
    /// Where the token begins in the field of a tenure, after the lease ID, and the length of the field.
    FIELD_TOKEN: usize = 1 + LEASE_LENGTH;
    FIELD_LENGTH: usize = LEASE_LENGTH + TOKEN_LENGTH;
    /// Where the parts of the value of a tenure begin. Its expiry comes first.
    VALUE_CLIENT: usize = 1 + EXPIRY_LENGTH;
    VALUE_KIND: usize = VALUE_CLIENT + CLIENT_LENGTH;
    VALUE_LABEL: usize = VALUE_KIND + 1;
    /// Where the label of a runner begins in the value of its turn: its tick comes after its kind.
    VALUE_RUNNER: usize = VALUE_LABEL + TICK_LENGTH;
    /// Where the tick, the time and the label begin in the record of the last completed tick. Its token comes
    /// first.
    DONE_TICK: usize = 1 + TOKEN_LENGTH;
    DONE_TIME: usize = DONE_TICK + TICK_LENGTH;
    DONE_LABEL: usize = DONE_TIME + EXPIRY_LENGTH;
    /// Where the parts of an operation begin. Its letter and its time to live come first.
    OP_TTL: usize = 2;
    OP_REST: usize = OP_TTL + TIME_LENGTH;
    /// The rest of an acquisition: whether it waits, the token that it reclaims or proposes, and the claim
    /// without its time to live.
    ACQUIRE_RECLAIMS: usize = OP_REST + 1;
    ACQUIRE_CLAIM: usize = ACQUIRE_RECLAIMS + TOKEN_LENGTH;
    ACQUIRE_RETENTION: usize = ACQUIRE_CLAIM + WINDOW_LENGTH;
    ACQUIRE_LEASE: usize = ACQUIRE_RETENTION + TIME_LENGTH;
    ACQUIRE_CLIENT: usize = ACQUIRE_LEASE + LEASE_LENGTH;
    ACQUIRE_OWNER: usize = ACQUIRE_CLIENT + CLIENT_LENGTH;
    /// The rest of a renewal: the retention, the field of the tenure, and a floor, if it has one.
    RENEW_FIELD: usize = OP_REST + TIME_LENGTH;
    RENEW_FLOOR: usize = RENEW_FIELD + FIELD_LENGTH;
    /// The rest of a release: the claim without its time to live, with the token after the lease ID.
    RELEASE_FIELD: usize = OP_REST + WINDOW_LENGTH + TIME_LENGTH;
    RELEASE_TOKEN: usize = RELEASE_FIELD + LEASE_LENGTH;
    RELEASE_CLIENT: usize = RELEASE_TOKEN + TOKEN_LENGTH;
    RELEASE_OWNER: usize = RELEASE_CLIENT + CLIENT_LENGTH;
    /// The rest of a `Resize`: the retention, the kind, and the capacity.
    RESIZE_KIND: usize = OP_REST + TIME_LENGTH;
    RESIZE_CAPACITY: usize = RESIZE_KIND + 1;
    /// The rest of an `AskYield`: the token of the tenure, and the label of the asking client.
    YIELD_LABEL: usize = OP_REST + TOKEN_LENGTH;
    /// The rest of an `Accept`: the field of the tenure, and the claim without its time to live.
    ACCEPT_CLAIM: usize = OP_REST + FIELD_LENGTH;
    /// Where the label begins in a stored request to yield. The end of the request's time comes first.
    REQUEST_LABEL: usize = 1 + EXPIRY_LENGTH;
    /// The rest of an `Enter`: the incarnation, then the incarnations to remember, watch or forget.
    ENTER_KNOWN: usize = OP_REST + LEASE_LENGTH;
    /// The most incarnations that a server remembers. They must outnumber the servers of a quorum: a server
    /// that had to drop some then still remembers one that has ended.
    MOST_KNOWN: usize = 256;
    /// The most quarantined incarnations that a server watches.
    MOST_WATCHED: usize = 16;
    /// The number of digits of the cursor of a listing.
    CURSOR_LENGTH: usize = u64::MAX.ilog10() as usize + 1;
    /// Scores in the line's sorted set above this are arrivals, in microseconds. Scores below it are times in
    /// milliseconds.
    LEAST_ARRIVAL: u64 = 1_000_000_000_000_000;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a length that differs from that of the formatted text.
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
