//! Texts made of parts with fixed lengths, so that the script finds each part by its position.

use std::time::Duration;

use crate::name::Owner;
use crate::protocol::claim::{Claim, ClientId, Counter, LeaseId};
use crate::protocol::incarnation::Incarnation;
use crate::protocol::limits::{
    LEASE_LENGTH, LONGEST_WINDOW_MS, TICK_LENGTH, TIME_LENGTH, TOKEN_LENGTH, UNITS_LENGTH,
    WINDOW_LENGTH,
};
use crate::time::{MILLIS, in_parts};
use crate::token::FencingToken;

/// Appends parts to a text. The text is bytes, because checking each part for UTF-8 would cost more than
/// writing it.
pub(in crate::protocol) struct Writer<'a>(pub(in crate::protocol) &'a mut Vec<u8>);

/// The number of digits of the largest number.
const MOST_DIGITS: usize = 20;

impl Writer<'_> {
    pub(in crate::protocol) fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(in crate::protocol) fn letter(&mut self, letter: u8) {
        self.0.push(letter);
    }

    /// Writes a number with exactly this many digits. A number that is too large becomes all nines.
    pub(in crate::protocol) fn number(&mut self, number: u64, length: usize) {
        let (mut digits, mut rest) = ([b'0'; MOST_DIGITS], number);
        let places = &mut digits[..length.min(MOST_DIGITS)];
        // Two digits at a time, by a constant divisor: so the compiler emits no division.
        let mut pairs = places.rchunks_exact_mut(2);
        for pair in &mut pairs {
            if rest == 0 {
                break;
            }
            let two = (rest % 100).to_le_bytes()[0];
            rest /= 100;
            pair.copy_from_slice(&[b'0' + two / 10, b'0' + two % 10]);
        }
        for first in pairs.into_remainder() {
            *first += (rest % 10).to_le_bytes()[0];
            rest /= 10;
        }
        if rest > 0 {
            places.fill(b'9');
        }
        self.0.extend_from_slice(places);
    }

    fn hex<const LENGTH: usize>(&mut self, bytes: [u8; LENGTH]) {
        let mut digits = [0; LEASE_LENGTH];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            let two = [byte >> 4, byte & 15];
            pair.copy_from_slice(&two.map(|digit| b"0123456789abcdef"[usize::from(digit)]));
        }
        self.0.extend_from_slice(&digits[..2 * LENGTH]);
    }

    /// Writes a time in whole milliseconds.
    pub(in crate::protocol) fn millis(&mut self, time: Duration) {
        self.number(millis(time), TIME_LENGTH);
    }

    fn window(&mut self, window: Duration) {
        self.number(millis(window).min(LONGEST_WINDOW_MS), WINDOW_LENGTH);
    }

    /// Writes the retention of the counter; 0 means dense tokens.
    pub(in crate::protocol) fn retention(&mut self, counter: Counter) {
        let retention = match counter {
            Counter::ClockFloor { retention } => millis(retention).max(1),
            Counter::Dense => 0,
        };
        self.number(retention, TIME_LENGTH);
    }

    pub(in crate::protocol) fn lease(&mut self, lease: LeaseId) {
        self.hex(lease.0.to_be_bytes());
    }

    pub(in crate::protocol) fn incarnation(&mut self, incarnation: Incarnation) {
        self.hex(incarnation.0.to_be_bytes());
    }

    pub(in crate::protocol) fn client(&mut self, client: ClientId) {
        self.hex(client.0.to_be_bytes());
    }

    /// Writes a token; 0 means none.
    pub(in crate::protocol) fn token(&mut self, token: Option<FencingToken>) {
        self.number(token.map_or(0, FencingToken::get), TOKEN_LENGTH);
    }

    fn owner(&mut self, owner: &Owner) {
        self.text(owner.kind());
        if let Some(tick) = owner.tick() {
            self.number(tick, TICK_LENGTH);
        }
        if let Some(share) = owner.share() {
            self.number(share.weight().into(), UNITS_LENGTH);
            self.number(share.capacity().into(), UNITS_LENGTH);
        }
        self.text(owner.label());
    }

    /// Writes the parts of a claim before its lease ID, except its time to live.
    pub(in crate::protocol) fn terms(&mut self, claim: &Claim) {
        self.window(claim.window);
        self.retention(claim.counter);
    }

    /// Writes the parts of a claim after its lease ID.
    pub(in crate::protocol) fn who(&mut self, claim: &Claim) {
        self.client(claim.client);
        self.owner(&claim.owner);
    }
}

fn millis(time: Duration) -> u64 {
    in_parts(time, MILLIS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a part whose length varies, which would shift the parts after it.
    #[test]
    fn every_part_has_its_length() {
        let mut text = Vec::new();
        let mut writer = Writer(&mut text);
        writer.number(42, 5);
        writer.number(u64::MAX, 5);
        writer.number(u64::MAX, MOST_DIGITS);
        writer.hex([0, 0xbe, 0xef]);
        writer.lease(LeaseId(u128::MAX));
        writer.token(None);
        let expected = format!(
            "00042{}{}00beef{}{}",
            "99999",
            u64::MAX,
            "f".repeat(32),
            "0".repeat(16)
        );
        assert_eq!(String::from_utf8(text), Ok(expected));
    }
}
