//! Room for unread pushes.

/// The number of pushes that may be unread on a listening connection. Beyond that some are missed, and every
/// waiter asks again.
///
/// Clients allocate all of it at once, fred even for each of its nine channels: 856 bytes a push. So it is
/// small at first, and grows if a burst overflows it.
#[derive(Clone, Copy)]
pub(super) struct Room(usize);

impl Room {
    pub(super) const FIRST: Self = Self(64);
    pub(super) const LARGEST: Self = Self(4_096);
    const GROWTH: usize = 8;

    pub(super) fn pushes(self) -> usize {
        self.0
    }

    pub(super) fn is_largest(self) -> bool {
        self.0 >= Self::LARGEST.0
    }

    pub(super) fn larger(self) -> Self {
        Self((self.0 * Self::GROWTH).min(Self::LARGEST.0))
    }
}

/// Why a connection for pushes has ended without an error.
pub(super) enum Stop {
    /// The locker has ended, or the server has closed the connection.
    Over,
    /// Pushes were missed, and a connection with more room may miss fewer.
    Missed,
}
