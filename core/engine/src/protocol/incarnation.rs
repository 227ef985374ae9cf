//! By what a quorum knows whether a server has forgotten something.

use std::fmt;
use std::str::FromStr;

/// The stretch of time in which a server of a quorum forgot nothing, as a number that is used once. It is
/// over when the server loses its data, or begins anew with what it had saved of them.
///
/// Printed as 32 hexadecimal digits, which is also its form in the store.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u128);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Incarnation {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incarnation({self})")
    }
}
